"""Power ceilings that change while a job runs: who sets them, which plans hold them, how nodes share them."""
