#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of a GPU, with what scripts/gpu/pack.sh has put into a folder. The last line counts.
#   scripts/gpu/test.sh FOLDER [LOGS]
# The programs are those that run on the mock driver in make test; here the driver is the machine's own. Each test is a
# process of its own, a few at a time, so that one that ends its process does not hide the others.
set -euo pipefail
folder=$(realpath "$1")
logs=$(realpath -m "${2:-$folder/logs}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$logs"
unset OTR_CUDA_DRIVER
export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OTR_CUDA_PLUGIN=$folder/lib/liboutrigger_cuda.so OTR_MATRIX_EVERY=${OTR_MATRIX_EVERY:-97}

# NAME FOLDER OF PLUGINS PROGRAM FILTER. A test that sets something of the simulated device, which a GPU does not have,
# ends with 77. The filters leave out what a driver does not see (tests/plugins/CMakeLists.txt says what; a number that is
# no stream ends a process in a real one), what looks for races, what counts several devices' bytes, and what counts a driver's own memory as the library's.
run() {
  local name=$1 plugins=$2 program=$3 filter=$4 test
  "$folder/bin/$program" --gtest_list_tests --gtest_filter="$filter" |
    awk '/^[^ ]/ { suite = $1 } /^  / { print suite $1 }' > "$logs/$name.tests"
  while read -r test; do printf '%s\0' "$name" "$plugins" "$program" "$test"; done < "$logs/$name.tests"
}
one() {
  local name=$1 plugins=$2 program=$3 test=$4 begin=$SECONDS status=0
  OTR_PLUGIN_PATH=$plugins timeout 240 "$folder/bin/$program" --gtest_filter="$test" > "$logs/$name.${test//\//_}.log" 2>&1 || status=$?
  case $status in
    0) result=passed ;;
    77) result='left out' ;;
    *) result=FAILED ;;
  esac
  echo "$result $((SECONDS - begin)) s, exit $status: $name $test"
}
export -f one
export folder logs

# PyTorch with a GPU, and NCCL, where the machine has them; NCCL may be a package of Python's.
source scripts/gpu/python.sh
find_python "$folder"
nccl=$("$python" -c 'import nvidia.nccl, glob; print(glob.glob(nvidia.nccl.__path__[0] + "/lib/libnccl.so.2")[0])' 2> /dev/null || true)
[[ -z $nccl ]] || export OTR_NCCL_LIBRARY=$nccl
OTR_NCCL_RANKS=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU' || true)
export OTR_NCCL_RANKS

# Alone, as some of them look at the memory that is free.
: > "$logs/all"
if [[ -z $python_missing ]]; then
  status=0
  timeout 120 "$python" -W ignore -m unittest discover -v -s "$folder/tests" > "$logs/torch.log" 2>&1 || status=$?
  sed -n 's/^\(test[^ ]*\) .*ok$/passed: torch \1/p; s/^\(FAIL\|ERROR\): /FAILED: torch /p' "$logs/torch.log" | tee -a "$logs/all"
  ((status == 0)) || echo "FAILED exit $status: torch" | tee -a "$logs/all"
else
  echo "PyTorch's tests: not run: $python_missing"
fi
[[ -n $nccl ]] || echo "NCCL's tests: not run: there is no package nvidia-nccl in $python"

{
  run kernels "$folder/lib" plugins_cuda_kernels '*'
  if [[ -n $nccl ]]; then
    run nccl "$folder/lib" otr_test_plugins_nccl 'NcclPlugin.BytesGo*:*.EveryRankGathersAll'
  fi
  run plugin "$folder/lib" otr_test_plugins_cuda 'CudaPlugin.Trains*:CudaPlugin.Every*'
  run device "$folder/simulated" otr_test_c_api_device "-DevicePlugins.*:DeviceAbilities.*:*.ARefusedGradientIsNotCounted:*.AForkedChildOpensItsOwn:*.AStreamThatThereIsNot*:*.WrongDevicesAreNamed:*.RefusedOnOneRankItIsMadeAsItShouldBe"
  run offload "$folder/simulated" otr_test_c_api_offload '-Alone.*:*.AGatherBringsDownWhatTheHostHasNoMasterOf'
  run ahead "$folder/simulated" otr_test_c_api_ahead '-DeviceAheadOlder.*'
  run ratio "$folder/simulated" otr_test_c_api_ratio '*'
  run away "$folder/simulated" otr_test_c_api_away '-*.TheDeviceIsFreeMeanwhile'
  run checkpoint "$folder/simulated" otr_test_c_api_checkpoint_device '*'
  run matrix "$folder/simulated" engine_matrix_test 'Device*:-*SharedMemory*:*.Rules'
} | xargs -0 -n 4 -P "${OTR_JOBS:-6}" bash -c 'one "$@"' one | tee -a "$logs/all"

passed=$(grep -c '^passed' "$logs/all" || true)
failed=$(grep -c '^FAILED' "$logs/all" || true)
echo "GPU tests: $passed passed, $failed failed, $(grep -c '^left out' "$logs/all" || true) left out, which need a simulated device"
((failed == 0 && passed > 0))
