"""How fast it is: ``python -m benchmarks [name...]``, or ``make bench``.

Each module beside this one has ``rows()``, which yields what it measured, or a ``main()`` that prints its own table.
Numbers are of one run on one machine, so the ones to keep are the ratios within a run;
docs/explanation/performance.md quotes some.
"""
