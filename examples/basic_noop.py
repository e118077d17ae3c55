"""The smallest dataflow: one stream without anything in it. It runs, does nothing, and ends."""

from malflow import SingleThreadRuntime, StreamProvider


def build_dataflow(provider: StreamProvider) -> None:
    provider.new_stream()


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
