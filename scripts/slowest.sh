#!/bin/sh
# Prints the slowest 20 tests of a run of gotestsum, which calls this after it, and one line about all tests.
"$(dirname "$0")/../.cache/tools/gotestsum" tool slowest --num 20 --threshold 1ms --jsonfile "$GOTESTSUM_JSONFILE"
echo "$TESTS_TOTAL tests, $TESTS_FAILED failed, $TESTS_SKIPPED skipped, $TESTS_ERRORS errors, in $GOTESTSUM_ELAPSED"
