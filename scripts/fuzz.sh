#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers with clang in build/fuzz and runs them, each for a sixth of the time: the configuration
# reader, the readers of safetensors files, of messages, of checkpoints and of Hugging Face models, then sequences of calls. What they learn stays in build/fuzz/corpus, what they find in
# build/fuzz/findings.   scripts/fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-120}
if ! clang++-19 -fsanitize=fuzzer,address -x c++ -o /dev/null - 2> /dev/null \
  <<< 'extern "C" int LLVMFuzzerTestOneInput(const char *, __SIZE_TYPE__) { return 0; }'; then
  echo "fuzz: clang-19 and libclang-rt-19-dev are needed (make setup says why they are missing)" >&2
  exit 1
fi

folder=build/fuzz
options=(-DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19
  -DOTR_FUZZ=ON "-DOTR_SANITIZE=address,undefined" -DOTR_EXAMPLES=OFF)
source scripts/ccache.sh
cmake -S . -B $folder -G Ninja --log-level=WARNING "${options[@]}" "${launchers[@]}"
cmake --build $folder --target otr_fuzz_dictionary otr_fuzz_config otr_fuzz_safetensors otr_fuzz_message otr_fuzz_checkpoint \
  otr_fuzz_huggingface otr_fuzz_api otr_api_fuzz

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1}
export OTR_PLUGIN_PATH=$PWD/$folder  # the simulated device's, which otr_api_fuzz builds
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
mkdir -p $folder/corpus/{config,safetensors,message,checkpoint,huggingface,api} $folder/findings
$folder/tests/fuzz/otr_fuzz_dictionary $folder/config.dict
common=(-max_total_time=$((seconds / 6)) -print_final_stats=1 -rss_limit_mb=2048
  "-artifact_prefix=$folder/findings/")
nice -n 19 $folder/tests/fuzz/otr_fuzz_config -dict=$folder/config.dict -max_len=8192 -timeout=10 \
  "${common[@]}" $folder/corpus/config tests/config/examples
nice -n 19 $folder/tests/fuzz/otr_fuzz_safetensors -max_len=8192 -timeout=10 "${common[@]}" $folder/corpus/safetensors
nice -n 19 $folder/tests/fuzz/otr_fuzz_message -max_len=8192 -timeout=10 "${common[@]}" $folder/corpus/message
# Their first inputs come from the mutators: files of our own writers.
nice -n 19 $folder/tests/fuzz/otr_fuzz_checkpoint -max_len=65536 -timeout=20 -malloc_limit_mb=64 "${common[@]}" \
  $folder/corpus/checkpoint
nice -n 19 $folder/tests/fuzz/otr_fuzz_huggingface -max_len=16384 -timeout=10 -malloc_limit_mb=64 "${common[@]}" \
  $folder/corpus/huggingface
# Random programs to begin with. Ranks' threads come and go: libFuzzer's own search for leaks after each
# program would take most of the time, so leaks are found at the end, and by otr_api_fuzz.
[[ -e $folder/corpus/api/1 ]] || $folder/tests/fuzz/otr_api_fuzz --programs 100 --write $folder/corpus/api
nice -n 19 $folder/tests/fuzz/otr_fuzz_api -max_len=1284 -timeout=200 -detect_leaks=0 "${common[@]}" \
  $folder/corpus/api
