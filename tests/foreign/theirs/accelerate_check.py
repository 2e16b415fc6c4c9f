"""Accelerate's own check of DeepSpeed configurations, as ``Accelerator.prepare`` makes it.

Prints the names of those refused as JSON, with the reasons.
"""

import json
import sys
from pathlib import Path

from accelerate.utils import DeepSpeedPlugin

refused = {}
for name, content in json.loads(Path(sys.argv[1]).read_text()).items():
    try:
        plugin = DeepSpeedPlugin(hf_ds_config=content)
        plugin.deepspeed_config_process(must_match=False)
    except ValueError as error:
        refused[name] = str(error)
print(json.dumps(refused))
