#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs the server's own test suites with tables in Alluvium, and compares the failures with
# expected.txt.
#
#   run.sh short         storage_engine and its parts trx and parts
#   run.sh long          engines/iuds and engines/funcs
#   run.sh SUITE...      these suites
#
# The packaged answers of storage_engine are older than the server: InnoDB fails most of these
# tests. So InnoDB's answers are recorded once for each server, in a copy of the suites in the
# cache, and Alluvium has to give the same. The packaged answers of engines/* are right.
#
# Fails if a test fails that expected.txt does not list, or if a listed test passes or is skipped.
# A name with `-` before it is that of a test that the script leaves out.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../../build/paths.sh"

# A change of the copy raises the number; older copies are then made again.
recipe=1
short=(storage_engine storage_engine/trx storage_engine/parts)
long=(engines/iuds engines/funcs)
expected=$checkout/mariadb/tests/suites/expected.txt
# Tests at a time: they often wait.
parallel=${ALLUVIUM_SUITES_PARALLEL:-2}

# Options of each server. The runner switches partitions off unless an option names them.
common=(--partition --binlog-format=row)
alluvium=(--innodb --plugin-load-add=ha_alluvium.so --plugin-maturity=experimental '--ignore-db-dirs=#alluvium'
    --loose-alluvium-memory-bytes=64M --loose-alluvium-lock-wait-timeout=1)

# Copies the suites, because recording changes them. Most files are only linked.
copy_suites() {
    local entry share=$server/usr/share/mysql
    rm -rf "$copy"
    mkdir -p "$copy/usr/share/mysql"
    for entry in bin sbin lib; do ln -s "$server/usr/$entry" "$copy/usr/$entry"; done
    for entry in "$share"/*; do
        [ "$entry" = "$share/mysql-test" ] || ln -s "$entry" "$copy/usr/share/mysql/"
    done
    # Hard links: the runner takes the real path of a link for the suites' folder.
    cp -al "$share/mysql-test" "$tests"
    for entry in suite/storage_engine plugin/innobase; do
        rm -rf "${tests:?}/$entry"
        cp -a "$share/mysql-test/$entry" "$tests/$entry"
    done
    # Differences from the packaged answers, which recording replaces.
    find "$tests/plugin/innobase/storage_engine" -name '*.rdiff' -delete
}

# Names the engine for the suites storage_engine: a copy of the server's template.
write_overlay() {
    local part overlay=$tests/plugin/alluvium/storage_engine
    for part in . trx parts; do
        mkdir -p "$overlay/$part"
        # shellcheck disable=SC2016 # A variable of the tests.
        sed 's/^# let \$ENGINE =;/let $ENGINE = ALLUVIUM;/' "$tests/suite/storage_engine/define_engine.inc" \
            >"$overlay/$part/define_engine.inc"
        grep -q '= ALLUVIUM;' "$overlay/$part/define_engine.inc" ||
            fail 'the template define_engine.inc of the suites has another form; change write_overlay'
    done
}

# Prints a regular expression for the runner: the tests that expected.txt leaves out.
left_out() {
    printf '^(%s)$\n' "$(sed -n 's/^-[^ ]*\/\([^ ]*\) .*/\1/p' "$expected" | paste -sd '|')"
}

# Runs the server's runner; log and report get the name. Its exit code also counts expected
# failures, so it is not looked at.
run_tests() { # name, arguments
    local name=$1
    shift
    rm -f "$results/$name.xml"
    (cd "$tests" && PERL5LIB=. perl mariadb-test-run.pl --force --max-test-fail=0 --retry=0 --nowarnings \
        --testcase-timeout=5 --parallel="$parallel" --vardir="$scratch/var" --tmpdir="$scratch/tmp" \
        --xml-report="$results/$name.xml" --skip-test="$(left_out)" "${common[@]/#/--mysqld=}" "$@" >"$results/$name.log" 2>&1) || true
    rm -rf "${scratch:?}/var" "$scratch/tmp"
    [ -s "$results/$name.xml" ] || {
        tail -n 20 "$results/$name.log" >&2
        fail "the runner of the suites ended early; the last lines of $results/$name.log are above"
    }
}

# Prints `RESULT suite/test` for each run of a test. The report has a line for each.
outcomes() { # suite, name
    sed -n 's/.*<testcase .*name="\([^"]*\)" status="MTR_RES_\([A-Z]*\)".*/\2 \1/p' "$results/$2.xml" |
        while read -r result test _; do printf '%s %s/%s\n' "$result" "$1" "$test"; done
}

record() {
    local suite name
    for suite in "${short[@]}"; do
        name=record-${suite//\//-}
        say "recording the answers of InnoDB: $suite"
        # Only tests that are named can be recorded.
        # shellcheck disable=SC2046 # A list of words.
        run_tests "$name" --record --enable-disabled --suite="$suite-innobase" \
            $(cd "$tests/suite/$suite" && basename -s .test ./*.test)
        outcomes "$suite" "$name" | sed -n 's/^FAILED /not recorded, fails with InnoDB: /p' >&2
    done
    printf '%s\n' "$recipe" >"$copy/recorded"
}

run_suite() { # suite
    local suite=$1 name=${1//\//-}
    local arguments=("${alluvium[@]/#/--mysqld=}" --mysqld=--plugin-dir="$scratch/plugins")
    case $suite in
        storage_engine*) arguments+=(--enable-disabled --suite="$suite-alluvium") ;;
        # The suites bring combinations with InnoDB and MyISAM; the option replaces them.
        *) arguments+=(--suite="$suite" --mysqld=--default-tmp-storage-engine=MyISAM
            --combination=--default-storage-engine=ALLUVIUM) ;;
    esac
    run_tests "$name" "${arguments[@]}"
    outcomes "$suite" "$name" >"$results/$name.outcomes"
    [ -s "$results/$name.outcomes" ] || fail "no test of $suite ran; see $results/$name.log"
    printf '%s: %s passed, %s failed, %s skipped\n' "$suite" "$(count PASSED "$name")" \
        "$(count FAILED "$name")" "$(count SKIPPED "$name")"
}

count() { grep -c "^$1 " "$results/$2.outcomes" || true; }

# Prints the tests with this result, each once.
tests_with() { # result, names
    local result=$1
    shift
    sed -n "s/^$result //p" "${@/%/.outcomes}" | sort -u
}

# Prints the tests of a suite in expected.txt.
listed() { # suite
    sed -n 's/^\([^-# ][^ ]*\) .*/\1/p' "$expected" | grep -x "$1/[^/]*" | sort -u
}

# Prints the difference that a failed test shows first, from the runner's log.
first_difference() { # suite, test
    awk -v test="$(basename "$2")" '
        /^[^ ]+ .*\[ / { own = 0; sub(/.*[.]/, "", $1); if ($1 == test && /\[ fail \]/) own = 1 }
        /^(---|[+][+][+]) / { next }
        own && (/^[-+@]/ || /^mysqltest:/ || /^At line/) { print "    " $0; if (++lines == 12) exit }
    ' "$results/${1//\//-}.log"
}

# Compares the failures of a suite with those listed.
judge() { # suite
    local suite=$1 name=$results/${1//\//-} test wrong=0
    # A test with a failed run has failed, whatever its other runs did.
    for test in $(comm -23 <(tests_with FAILED "$name") <(listed "$suite")); do
        printf 'FAILED and not in expected.txt: %s\n' "$test"
        first_difference "$suite" "$test"
        wrong=1
    done
    for test in $(comm -13 <(tests_with FAILED "$name") <(listed "$suite")); do
        printf 'in expected.txt, but it passes, is skipped or does not exist: %s\n' "$test"
        wrong=1
    done
    return "$wrong"
}

choose_suites() {
    local argument
    [ "$#" -ge 1 ] || {
        printf 'usage: run.sh short | long | SUITE...\n' >&2
        exit 2
    }
    suites=()
    for argument in "$@"; do
        case $argument in
            short) suites+=("${short[@]}") ;;
            long) suites+=("${long[@]}") ;;
            *) suites+=("$argument") ;;
        esac
    done
}

main() {
    local suite wrong=0
    choose_suites "$@"
    need perl perl
    perl -MGetopt::Long -MTime::HiRes -MIO::Select -e 1 || fail 'missing: modules of Perl (Debian: apt-get install perl)'
    use_server
    copy=$cache/mariadb-suites/$(basename "$server")
    # The runner finds its suites only in a folder of this name.
    tests=$copy/usr/share/mysql/mysql-test
    mkdir -p "$cache/mariadb-suites"
    # Runs use ports and files of the copy, so one runs at a time.
    exec {lock}>"$cache/mariadb-suites/.lock"
    flock -n "$lock" || { say 'waiting for another run of the suites'; flock "$lock"; }
    # A short path, for sockets.
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    # The plugin of now, because a build may replace it meanwhile.
    mkdir "$scratch/plugins"
    cp "$plugin" "$scratch/plugins/"
    results=$copy/results
    if [ "$(cat "$copy/recorded" 2>/dev/null)" != "$recipe" ]; then
        copy_suites
        mkdir -p "$results"
        record
    fi
    write_overlay
    for suite in "${suites[@]}"; do
        run_suite "$suite"
        judge "$suite" || wrong=1
    done
    [ "$wrong" -eq 0 ] || fail "the suites differ from $expected; whole logs are in $results"
}

main "$@"
