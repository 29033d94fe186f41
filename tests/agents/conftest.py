import warnings

with warnings.catch_warnings(action="ignore"):  # of its escapes, each time that it is compiled with warnings as errors
    import google.genai  # noqa: F401
