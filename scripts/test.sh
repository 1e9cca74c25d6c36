#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of a built tree; ctest's closing lines come last.
# OTR_REQUIRE_ALL=1: a test that is skipped and not listed in tests/skips.txt is a failure.
#   scripts/test.sh FOLDER TIER [SANITIZE]
# TIER: fast, full, soak, or all (fast and full). Under a sanitizer the soak is the full tier, whose tests
# are long there. OTR_JOBS: tests at a time;
# one more than there are cores without it, because some only wait.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1
tier=$2
sanitize=${3:-}

# -L and -LE take regular expressions on labels; a test without a label counts as full. Under a sanitizer
# the bindings stay out (their host programs are not built with it), and so does what says no-sanitizer.
excluded=soak
[[ -z $sanitize ]] || excluded+="|bindings|no-sanitizer"
[[ $sanitize != *thread* ]] || excluded+="|one-thread"
case $tier in
  all) selection=(-LE "^($excluded)\$") ;;
  full) selection=(-LE "^($excluded|fast)\$") ;;
  fast) selection=(-L '^fast$' -LE "^($excluded)\$") ;;
  soak) [[ -n $sanitize ]] && selection=(-LE "^($excluded|fast)\$") || selection=(-L '^soak$') ;;
  *)
    echo "test: TIER is '$tier'; it is one of fast, full, soak, all" >&2
    exit 2
    ;;
esac

launcher=()
case $sanitize in
  *thread*)
    # gcc 12's ThreadSanitizer cannot place its shadow under a highly randomised address space.
    setarch "$(uname -m)" -R true 2> /dev/null && launcher=(setarch "$(uname -m)" -R)
    ;;
esac
# Without intercept_tls_get_addr=0 a sanitizer guesses where a plugin's thread-local memory begins and how long
# it is from the words before it (google/sanitizers 1267), and may guess wrong: AddressSanitizer's leak check
# crashed in otr_api_fuzz, ThreadSanitizer wanted 543 TB of shadow in otr_test_c_api_checkpoint_device.
no_guess=intercept_tls_get_addr=0
asan=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:$no_guess
export ASAN_OPTIONS=${ASAN_OPTIONS:-$asan}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:$no_guess}

status=0
# run_tests OPTION…: the tests that ctest's options select.
run_tests() {
  ${launcher[@]+"${launcher[@]}"} ctest --test-dir "$folder" "$@" --no-tests=error \
    --output-on-failure --no-label-summary -j "${OTR_JOBS:-$(($(nproc) + 1))}"
}
run_tests "${selection[@]}" || status=$?
if [[ ${OTR_REQUIRE_ALL:-0} == 1 ]]; then python3 scripts/skips.py "$folder" || status=1; fi
# Only ctest's own failure, and only where nothing but the leak check's tracer failed, is tried once more.
if ((status == 8)) && [[ $sanitize == *address* ]] && python3 scripts/tracer_crashed.py "$folder"; then
  status=0
  run_tests --rerun-failed || status=$?
fi
exit "$status"
