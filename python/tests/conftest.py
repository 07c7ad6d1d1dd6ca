"""The group `foreign` (torch 2, transformers) runs where SIGHTLINE_FOREIGN=1, in an environment of its own."""
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "foreign")]  # plain.py, models of tests
collect_ignore = [] if os.environ.get("SIGHTLINE_FOREIGN") == "1" else ["foreign"]
