# shellcheck shell=bash
# Every system package that the project needs, in one table, and the code that installs what is
# missing. Sourced by quickstart, test and lint. cmake/dependencies.cmake checks the libraries'
# versions; tests/requirements.txt pins the Python side.

# Columns: Debian 12, Ubuntu 24.04 (untested; "=" means the same name), what it is for.
readonly PACKAGE_TABLE='
g++                      =                 C++20 compiler (12 or later)
cmake                    =                 build description (3.25 or later)
ninja-build              =                 build runner
ccache                   =                 makes a rebuild cheap; used when it is there
pkg-config               =                 finds PCRE2, utf8proc and libedit
libcli11-dev             =                 command line of minisgl
libfmt-dev               =                 text formatting
libspdlog-dev            =                 logging
nlohmann-json3-dev       =                 JSON
libsimdjson-dev          =                 JSON files of many megabytes
libboost1.81-dev         libboost1.83-dev  Asio and Beast: HTTP server (headers only)
zlib1g-dev               =                 compressed test data
liblzma-dev              =                 compressed test data
libpcre2-dev             =                 pre-tokenizer patterns
libutf8proc-dev          =                 Unicode normalisation and character classes
libedit-dev              =                 line editing in minisgl shell
libcurl4-openssl-dev     =                 minisgl pull: downloads
libssl-dev               =                 HTTPS, hashes of minisgl pull
libtomlplusplus-dev      =                 the settings file (header only)
libgloo-dev              =                 several ranks (--tp); looked for when there are some
libgtest-dev             =                 unit tests
libgmock-dev             =                 unit tests
python3                  =                 end-to-end tests, tools
python3-venv             =                 private Python environments (.venv, .cache)
ca-certificates          =                 lets pip trust the package index
'

# Prints the names of all packages of this system, one a line. Fails on a system without a column.
packages_of_this_system() {
  local id='' version_id='' column
  id="$(. /etc/os-release 2> /dev/null && echo "${ID:-}")"
  version_id="$(. /etc/os-release 2> /dev/null && echo "${VERSION_ID:-}")"
  case "${id}-${version_id}" in
    debian-12) column=1 ;;
    ubuntu-24.04) column=2 ;;
    *) return 1 ;;
  esac
  awk -v column="${column}" 'NF { print ($column == "=") ? $1 : $column }' <<< "${PACKAGE_TABLE}"
}

# Prints those of the packages named as arguments that are not installed.
missing_packages() {
  local installed
  installed="$(dpkg-query --show --showformat='${db:Status-Abbrev} ${Package}\n' 2> /dev/null |
    awk '$1 == "ii" { print $2 }')"
  # grep exits 1 when nothing is left, which is the good case here.
  printf '%s\n' "$@" | grep --invert-match --line-regexp --fixed-strings "${installed}" || true
}

# Installs what is missing; needs no rights and no network when nothing is.
ensure_packages() {
  local packages missing as_root=()
  if [[ -n "${MINISGL_SKIP_PACKAGES:-}" ]]; then
    note 'not looked at (MINISGL_SKIP_PACKAGES is set)'
    return
  fi
  if ! packages="$(packages_of_this_system)" || [[ -z "$(command -v dpkg-query)" ]]; then
    fail "this script knows the packages of Debian 12 and Ubuntu 24.04, and this system is neither." \
      'Install what the table in scripts/packages.sh lists, then run again with' \
      'MINISGL_SKIP_PACKAGES=1.'
  fi
  # shellcheck disable=SC2086  # one word for each package
  missing="$(missing_packages ${packages} | tr '\n' ' ')"
  if [[ -z "${missing}" ]]; then
    note 'all there'
    return
  fi

  if [[ "$(id -u)" != 0 ]]; then
    if [[ -z "$(command -v sudo)" ]] || { [[ ! -t 0 ]] && ! sudo -n -v 2> /dev/null; }; then
      fail 'these packages are missing, and neither root nor sudo is available to install them.' \
        'Ask an administrator to run:' "  apt-get install ${missing}"
    fi
    as_root=(sudo)
    sudo -v  # asks for the password now, while the terminal is free
  fi
  note "installing ${missing}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
  logged packages "${as_root[@]}" "${apt[@]}" update
  # shellcheck disable=SC2086
  logged packages "${as_root[@]}" "${apt[@]}" install --no-install-recommends ${missing}
}
