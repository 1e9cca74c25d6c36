# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034 # python_missing is read by who sources this
# find_python FOLDER: a python that sees a GPU through PyTorch and has our package, in $python; else $python_missing says
# why there is none. A Python of another version than that of the build has the extension made anew.
python=${OTR_PYTHON:-python3}
python_missing=
find_python() {
  local folder=$1 include suffix
  export PYTHONPATH=$folder/python${PYTHONPATH:+:$PYTHONPATH}
  if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
    python_missing="$python has no PyTorch that sees a GPU"
  elif ! "$python" -c 'import outrigger' 2> /dev/null; then
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
    "${CC:-cc}" -shared -fPIC -O1 -w -I "$include" -I "$folder/source" "$folder/source/lowlevel_wrap.c" \
      -o "$folder/python/outrigger/_lowlevel$suffix" "$folder/lib/liboutrigger.so.0" &&
      rm -f "$folder/python/outrigger/_lowlevel.so" && "$python" -c 'import outrigger' ||
      python_missing="the package cannot be made for $python"
  fi
}
