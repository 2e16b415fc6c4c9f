"""Our 1F1B and DualPipe-V against DeepSpeed's own: the same computations in the same order on every rank."""

from deepspeed.runtime.pipe.schedule import BackwardPass, DualPipeVSchedule, ForwardPass, TrainSchedule

from perseus_ds.schedule import textbook

LETTER = {ForwardPass: "F", BackwardPass: "B"}


def test_same_order_for_every_size() -> None:
    for stages in range(1, 9):
        for microbatches in range(1, 13):
            orders = textbook("1f1b", stages=stages, microbatches=microbatches).orders
            for stage, order in enumerate(orders):
                steps = TrainSchedule(microbatches, stages, stage).steps()
                theirs = "".join(LETTER.get(type(command), "") for step in steps for command in step)
                assert "".join(instruction.kind.value for instruction in order) == theirs


def test_same_dualpipe_v_for_every_size() -> None:
    for ranks in range(2, 9):
        for microbatches in range(2 * ranks, 3 * ranks + 2):
            orders = textbook("dualpipe-v-whole", stages=2 * ranks, microbatches=microbatches).orders
            for rank, order in enumerate(orders):
                back = 2 * ranks - 1 - rank
                theirs = [
                    f"{back if c.phase else rank}{LETTER[type(c)]}{c.buffer_id % microbatches}"
                    for step in DualPipeVSchedule(microbatches, ranks, rank).steps()
                    for c in step
                    if type(c) in LETTER
                ]
                assert [str(one) for one in order] == theirs
