"""A link with delay and loss, in user space: forward frames between two interfaces, each a while later.

python slow_link.py forward ONE OTHER DELAY_S LOSS    until killed
python slow_link.py plain INTERFACE                   frames as they are on a wire, for who reads them
"""

from __future__ import annotations

import array
import fcntl
import random
import select
import socket
import struct
import sys
import time
from collections import deque

ETH_P_ALL, OUTGOING, SIOCETHTOOL = 0x0003, 4, 0x8946
OFFLOADS = (0x17, 0x1F, 0x24)  # checksums, segmentation by TCP's device, segmentation in software
MOST_BYTES = 65_536


def plain(interface: str) -> None:
    """Have the kernel send whole frames with checksums, which it leaves to the next device otherwise."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for offload in OFFLOADS:
            value = array.array("B", struct.pack("II", offload, 0))
            fcntl.ioctl(sock, SIOCETHTOOL, struct.pack("16sP", interface.encode(), value.buffer_info()[0]))


def forward(one: str, other: str, delay_s: float, loss: float) -> None:
    """Forward every frame after a delay, but for a share that is lost, alike in every run."""
    ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) for _ in range(2)]
    for end, interface in zip(ends, (one, other), strict=True):
        end.bind((interface, ETH_P_ALL))
    across = {ends[0]: ends[1], ends[1]: ends[0]}
    luck, waiting = random.Random(1), deque[tuple[float, socket.socket, bytes]]()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        left_s = None if not waiting else max(0.0, waiting[0][0] - time.monotonic())
        for end in select.select(ends, [], [], left_s)[0]:
            frame, address = end.recvfrom(MOST_BYTES)
            if address[2] != OUTGOING and luck.random() >= loss:
                waiting.append((time.monotonic() + delay_s, across[end], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, to, frame = waiting.popleft()
            to.send(frame)


if __name__ == "__main__":
    if sys.argv[1] == "plain":
        plain(sys.argv[2])
    else:
        forward(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
