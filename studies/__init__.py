"""Study files, benchmarks, examples and the tools that make the project's tables."""
