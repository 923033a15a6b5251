"""A progress that keeps what it receives."""

from autosplit.study.progress import Progress, Status


class Notes(Progress):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.trials: list[Status] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def trial(self, status: Status) -> None:
        self.trials.append(status)
