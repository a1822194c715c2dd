"""The folder of one training run: settings, log, checkpoint, and at the end results, networks and curves."""

import json
from pathlib import Path

import numpy as np

from . import atomic
from .curves import curves
from .idx import DataError, ToldError


class RunFolder:
    """A new folder, or with `resume` the folder of a run that was stopped. Its settings must be equal."""

    def __init__(self, path, settings, resume):
        self.path, self.settings = Path(path), settings
        if not resume:
            if self.path.exists():
                raise DataError(
                    f"{path}: exists already, expected a new folder. Continue its run with --resume, remove it, or "
                    "name another folder."
                )
            self.path.mkdir(parents=True)
            atomic.write_text(self.path / "settings.json", json.dumps(settings, indent=1) + "\n")
            return
        if (self.path / "results.json").exists():
            raise DataError(f"{path}: this run is complete, expected one that was stopped.")
        before = self.read("settings.json", json.loads)
        if not isinstance(before, dict):
            raise DataError(f"{self.path / 'settings.json'}: not the settings of a run.")
        for key in sorted(before.keys() | settings.keys()):
            if before.get(key) != settings.get(key):
                raise DataError(
                    f"{path}: was started with {key} {before.get(key)!r}, and is now resumed with "
                    f"{settings.get(key)!r}. Pass the same options."
                )

    def read(self, name, parse):
        """Returns the parsed content of a file in the folder. Raises DataError."""
        try:
            return parse((self.path / name).read_bytes())
        except OSError as error:
            raise DataError(f"{error}. Expected a folder that `train` wrote.") from None
        except ValueError as error:
            raise DataError(f"{self.path / name}: broken ({error}).") from None

    def log_file(self):
        """Opens the log to append to it."""
        return open(self.path / "training.log", "a")

    def save(self, students, history):
        """Saves the state after an epoch. The former file stays until the new one is complete."""
        state = {"settings": self.settings, "history": history, "students": students.state()}
        atomic.save(self.path / "checkpoint.pt", state)

    def restore(self, students, processes):
        """Restores the last checkpoint, and returns the history of its epochs; [] if there is no checkpoint."""
        path = self.path / "checkpoint.pt"

        def read():
            if not path.exists():
                return None
            state = atomic.load(path, "a checkpoint of `train`")
            if state["settings"] != self.settings:
                raise DataError(f"{path}: a checkpoint of a run with other settings.")
            return state

        try:
            state = processes.first(read)
            if state is None:
                return []
            students.restore(state["students"])
            return state["history"]
        except (KeyError, TypeError, RuntimeError) as error:
            raise DataError(f"{path}: no checkpoint of this network ({error}).") from None
        except ToldError:
            raise
        except DataError as error:
            raise DataError(f"{error} Remove it to start again from epoch 1.") from None

    def finish(self, students, history, scores):
        """Writes results, networks and curves. results.json comes last: it shows that all files are there."""
        networks = {n: p.detach().cpu().numpy() for n, p in students.params.items()}
        atomic.replace(self.path / "students.npz", lambda file: np.savez(file, **networks))
        atomic.write_text(self.path / "network.txt", students.network.text)
        atomic.write_text(self.path / "curves.svg", curves(history))
        results = {"settings": self.settings, "validation": scores, "seconds": round(students.seconds, 1),
                   "history": history}  # fmt: skip
        atomic.write_text(self.path / "results.json", json.dumps(results, indent=1) + "\n")
        for name in ("checkpoint.pt", "teachers.pt"):
            (self.path / name).unlink(missing_ok=True)
