# Function find_mistakes, for scripts that check that tests find planted mistakes. The script has an
# array `mistakes`; an entry is the name of the mistake, the target of the test (see `target_of`),
# the name of the test, and a description.

# Prints the arguments of cargo test for a target.
target_of() {
    case $1 in
        lib) echo "-p alluvium --lib" ;;
        it) echo "-p alluvium --test it" ;;
        core) echo "-p rumbench-core --lib" ;;
        bin) echo "-p rumbench --bin rumbench" ;;
        run) echo "-p rumbench --test laboratory" ;;
        *)
            echo "there is no target $1" >&2
            return 1
            ;;
    esac
}

run_test() { # target, test, mistake
    local arguments
    arguments=$(target_of "$1") || return
    # Builds first: the limit is for a test that hangs.
    # shellcheck disable=SC2086
    cargo test --quiet --locked --no-run $arguments 2>&1 &&
        PLANTED=$3 timeout 300 cargo test --quiet --locked $arguments -- "$2" 2>&1
}

# Builds a copy of the workspace with the patch, in which a switch enables each mistake. For each
# mistake, or those named, one test must pass without it and fail with it. Returns 1 otherwise.
find_mistakes() { # patch, names...
    local patch=$1 root missed=0 line name where test what said
    shift
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/planted
    local copy=$CARGO_TARGET_DIR/tree
    rm -rf "$copy"
    mkdir -p "$copy"
    (cd "$root" && git ls-files -z | xargs -0 cp -p --parents -t "$copy")
    cd "$copy"
    patch --quiet --strip=1 <"$patch"
    for line in "${mistakes[@]}"; do
        read -r name where test what <<<"$line"
        [ "$#" -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
        if ! said=$(run_test "$where" "$test" none) || grep -q '^running 0 tests' <<<"$said"; then
            printf '%-22s its test %s does not pass without the mistake\n%s\n' "$name" "$test" "$said"
            missed=1
        elif said=$(run_test "$where" "$test" "$name"); then
            printf '%-22s NOT FOUND by %s: %s\n' "$name" "$test" "$what"
            missed=1
        else
            printf '%-22s found by %s\n' "$name" "$test"
        fi
    done
    return "$missed"
}
