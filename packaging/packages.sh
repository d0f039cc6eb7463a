# shellcheck shell=bash
# packaging/packages.sh: which Debian 12 packages berth needs, and how the scripts at the root install them.
#
# Sourced by ./run, ./check and tests/fresh. Everything comes from Debian; nothing is downloaded from elsewhere. A package that is there is not
# touched, and when all are there no package tool but dpkg-query is started: a second start costs milliseconds and works without a network.

# What `meson setup && ninja` needs. libc6-dev is only recommended by gcc, and libprotobuf-dev brings google/protobuf/descriptor.proto, which
# protobuf-c's own .proto file imports.
# shellcheck disable=SC2034
BUILD_PACKAGES=(
        gcc libc6-dev meson ninja-build pkg-config
        libevent-dev libnghttp2-dev libssl-dev
        libprotobuf-c-dev protobuf-c-compiler libprotobuf-dev
        libyaml-dev libsqlite3-dev
)

# What the tests need on top of it.
# shellcheck disable=SC2034
CHECK_PACKAGES=(
        libcmocka-dev libjansson-dev
        clang libclang-rt-14-dev clang-format
        python3 python3-grpcio python3-protobuf python3-yaml
        openssl strace procps git shellcheck valgrind
        etcd-server etcd-client golang-cfssl
        podman runc crun conmon catatonit containernetworking-plugins iptables busybox-static
)

# And what only `./check full` needs.
# shellcheck disable=SC2034
FULL_PACKAGES=(debootstrap nghttp2-client nghttp2-server chromium)
# A machine may have Node.js of another origin, beside which Debian's npm cannot be installed.
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then FULL_PACKAGES+=(nodejs npm); fi

# missing_packages PACKAGE...: prints those that are not installed, one per line.
missing_packages() {
        local installed package
        installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii *//p')
        for package in "$@"; do
                grep -qxF -- "$package" <<<"$installed" || printf '%s\n' "$package"
        done
}

# install_packages PACKAGE...: installs what is missing, as root or by sudo; otherwise says what to type and fails.
install_packages() {
        local list missing=() as_root=() log
        if ! command -v dpkg-query >/dev/null; then
                echo "error: this script sets up Debian 12, and there is no dpkg-query here" >&2
                echo "hint: install these by hand, then use meson setup build && ninja -C build: $*" >&2
                return 1
        fi
        list=$(missing_packages "$@")
        [ -n "$list" ] || return 0
        mapfile -t missing <<<"$list"

        if [ "$(id -u)" -ne 0 ]; then
                # A password can be asked for only where somebody can type it.
                if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
                        as_root=(sudo)
                else
                        echo "error: some packages are missing, and neither root nor sudo is at hand to install them" >&2
                        echo "hint: as root: apt-get install --no-install-recommends ${missing[*]}" >&2
                        return 1
                fi
        fi
        echo "installing ${#missing[@]} packages: ${missing[*]}" >&2
        log=$(mktemp)
        # A source that cannot be reached is no reason to stop: what is needed may come from the others, and the installation itself tells.
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update >"$log" 2>&1 || true
        if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
                apt-get install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1 </dev/null; then
                tail -n 20 "$log" >&2
                echo "error: apt-get could not install what is missing" >&2
                echo "hint: the whole output is in $log; by hand: apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
                return 1
        fi
        rm -f "$log"
}

# build_tree DIR [meson option...]: makes DIR a configured build tree. A tree that is configured already is left to ninja, which configures again
# by itself when a meson.build has changed; one that a broken configure left behind, or that stems from another place, is made anew; and one that was
# configured before the test libraries came is told of them.
build_tree() {
        local dir=$1 library
        shift
        if [ ! -f "$dir/build.ninja" ] || ! grep -qsF "\"source\": \"$PWD\"" "$dir/meson-info/meson-info.json"; then
                rm -rf "$dir"
                meson setup "$dir" "$@"
                return
        fi
        for library in libcmocka-dev:cmocka libjansson-dev:jansson; do
                if ! grep -qsF "\"${library#*:}\"" "$dir/meson-info/intro-dependencies.json" && [ -z "$(missing_packages "${library%:*}")" ]; then
                        meson setup --reconfigure "$dir"
                        return
                fi
        done
}
