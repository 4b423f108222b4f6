"""The kernels under measurement, one folder a family. Imported as `gemmgate.kernels`.

At the root of a checkout this folder also answers to the bare name `kernels`, which belongs to
Hugging Face's package. Where that is installed, whoever asks for it gets it: transformers does.
"""

if __name__ == "kernels":
    import sys
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    from pathlib import Path

    # Any other checkout on the path is skipped too, or two of them would hand the name back and forth.
    _elsewhere = [entry for entry in sys.path if not Path(entry, "kernels", "_triton").is_dir()]
    _spec = PathFinder.find_spec("kernels", _elsewhere)
    if _spec is not None and _spec.loader is not None:
        sys.modules["kernels"] = module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules["kernels"])
