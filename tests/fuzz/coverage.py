#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the line coverage of each parser by the corpus, without mutation.

usage: coverage.py BUILD [--lines]

BUILD has -Db_coverage=true -Dbuildtype=debug and test-fuzz-corpus. Lines are
those of gcov; --lines prints the lines that were not run. ELSEWHERE names the
functions of these files that no target calls (writers, file searches); they
are not counted. The exit code is 1 if a parser has less than 90 %.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

LEAST = 90
PARSERS = {
    "zip": ["stages/files/zip.c", "stages/files/zip_read.c"],
    "model": ["stages/frontend/container.c"],
    "document": ["stages/files/pt2/*.c"],
    "safetensors": ["stages/files/safetensors.c"],
    "index": ["stages/files/given.c"],
    "tokens": ["stages/files/data/index.c", "stages/files/data/tokens.c",
               "stages/files/data_look.c"],
    "plan": ["stages/split/store/unpack.c", "stages/split/store/check_plan.c",
             "stages/base/fold/*.c"],
    "manifest": ["stages/files/checkpoint/manifest.c", "stages/files/checkpoint/manifest_names.c",
                 "stages/files/checkpoint/manifest_options.c"],
    "frame": ["daemon/common/control/frame.c", "stages/base/untrusted/wire.c"],
    "request": ["daemon/loop/serve/request.c"],
    "csv": ["stages/sched/parse.c"],
    "costs": ["stages/sched/costs.c"],
    "program": ["stages/alias/text.c"],
    "options": ["daemon/common/config.c",
                "daemon/common/options/config_text.c",
                "daemon/common/options/ramp.c"],
    "expr": ["stages/graph/sizes/expr.c", "stages/graph/sizes/expr_eval.c",
             "stages/graph/sizes/symbol.c"],
    "graph": ["stages/graph/text/args.c", "stages/graph/text/parse.c",
              "stages/graph/text/scan.c"],
    "line": ["daemon/ctl/report/line.c"],
    "flight": ["stages/run/watch/flight.c", "daemon/ctl/flight/blame.c"],
}
ELSEWHERE = {
    "daemon/common/config.c":
        "pstd_config_env name_variable pstd_config_env_unread "
        "pstd_config_given pstd_config_drop pstd_ranks pstd_replicas",
    "daemon/common/options/config_text.c":
        "add_wrapped add_value add_help pstd_config_help pstd_option_help "
        "pstd_config_facts",
    "daemon/common/options/ramp.c":
        "pstd_ramp_at pstd_ramp_counts pstd_ramp_sum pstd_ramp_steps",
    "stages/base/fold/fold.c": "check_fold pst_fold",
    "stages/base/fold/lines.c":
        "pst_fold_lines fold_lines find_runs find_run put_run run_saves "
        "run_length growth_of find_last_equal index_line take_lines take_line",
    "stages/base/fold/message.c":
        "pst_message_lines add_message add_list add_bytes add_text "
        "read_varint report_unfit",
    "stages/base/fold/runs.c": "pst_fold_pack_runs put_deltas zigzag_of",
    "stages/files/given.c":
        "find_file choose_file record_if_suffix open_file open_pattern "
        "pst_given_path pst_given_files pst_given_file pst_given_load",
    "stages/files/checkpoint/manifest.c":
        "pst_checkpoint_list pst_checkpoint_list_all newest_first "
        "pst_checkpoint_step_of parse_step "
        "pst_checkpoint_is_rest pst_checkpoint_has_shards "
        "pst_checkpoint_is_complete pst_checkpoint_step_dir",
    "stages/graph/sizes/expr.c": "pst_expr_add",
    "stages/graph/sizes/symbol.c": "pst_symbols_copy pst_symbols_limit",
    "stages/run/watch/flight.c":
        "map_file create_file register_map find_map pst_flight_repair "
        "pst_flight_is_lost pst_flight_open pst_flight_close "
        "set_record_number pst_flight_begin pst_flight_waits pst_flight_end",
    "stages/sched/costs.c":
        "pst_costs_write check_numbers print_costs modules_json stages_json "
        "stage_json append_value",
}


def counts(build, source):
    """Returns {line: runs} of a source, without the functions of ELSEWHERE."""
    # meson derives the name of an object file from the path of its source.
    words = source.split("/")
    found = []
    for i in range(1, len(words)):
        found += glob.glob(f"{build}/**/{'_'.join(words[i:])}.gcno",
                           recursive=True)
        if found:
            break
    skipped = ELSEWHERE.get(source, "").split()
    missing = set(skipped)
    ret = {}
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run(
            ["gcov", "-j", "-t", *map(os.path.abspath, found)], cwd=folder,
            check=True, capture_output=True).stdout
    for text in out.splitlines():
        for file in json.loads(text)["files"]:
            if not file["file"].endswith(source):
                continue
            for line in file["lines"]:
                missing.discard(line.get("function_name"))
                if line.get("function_name") not in skipped:
                    at = line["line_number"]
                    ret[at] = ret.get(at, 0) + line["count"]
    if missing:
        sys.exit(f"coverage.py: {source} has no {' '.join(sorted(missing))}")
    return ret


def main():
    build, show = sys.argv[1], "--lines" in sys.argv[2:]
    root = os.path.abspath(f"{os.path.dirname(__file__)}/../..")
    for old in glob.glob(f"{build}/**/*.gcda", recursive=True):
        os.remove(old)
    subprocess.run(
        [os.path.abspath(f"{build}/tests/fuzz/targets/test-fuzz-corpus")],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PST_FUZZ": "0",
             "PST_CORPUS": f"{root}/tests/fuzz/corpus"})
    low = 0
    for target, patterns in PARSERS.items():
        sources = [os.path.relpath(x, root) for pattern in patterns
                   for x in sorted(glob.glob(f"{root}/{pattern}"))]
        lines = [(source, at, n) for source in sources
                 for at, n in sorted(counts(build, source).items())]
        missed = [x for x in lines if x[2] == 0]
        percent = 100 * (1 - len(missed) / len(lines))
        low += percent < LEAST
        print(f"{target:12} {percent:5.1f} % of {len(lines)} lines")
        for source, at, _ in missed if show else ():
            with open(f"{root}/{source}", encoding="utf-8") as file:
                print(f"  {source}:{at}: {file.readlines()[at - 1].strip()}")
    return low > 0


if __name__ == "__main__":
    sys.exit(main())
