package archtest

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var updateFlag = flag.Bool("update", false, "write lower numbers into the baselines; higher ones are refused")

// A baseline is the number of findings that a package or Markdown file may
// have, by group of rules. Its file has one line for each:
//
//	internal/cli words=12 length=3
//
// A merge of two branches may leave several lines for one name: the lowest
// numbers count.
type baseline map[string]map[string]int

// countFindings makes the baseline that the findings need.
func countFindings(findings map[string][]finding) baseline {
	out := baseline{}
	for where, list := range findings {
		for _, f := range list {
			if out[where] == nil {
				out[where] = map[string]int{}
			}
			out[where][f.group]++
		}
	}
	return out
}

func parseBaseline(content string) (baseline, error) {
	out := baseline{}
	for i, line := range strings.Split(content, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		numbers := map[string]int{}
		for _, field := range fields[1:] {
			group, number, _ := strings.Cut(field, "=")
			n, err := strconv.Atoi(number)
			if err != nil {
				return nil, fmt.Errorf("line %d: %q is not GROUP=NUMBER", i+1, field)
			}
			numbers[group] = n
		}
		if earlier, twice := out[fields[0]]; twice {
			numbers = lowerNumbers(earlier, numbers)
		}
		out[fields[0]] = numbers
	}
	return out, nil
}

// lowerNumbers returns the lower number of each group. A missing group is 0.
func lowerNumbers(a, b map[string]int) map[string]int {
	out := map[string]int{}
	for group := range a {
		if n := min(a[group], b[group]); n > 0 {
			out[group] = n
		}
	}
	return out
}

// String returns the file, one sorted line for each name.
func (b baseline) String() string {
	var out strings.Builder
	out.WriteString("# Findings that are left, by package or file. A number may only fall: see CONTRIBUTING.md.\n")
	for _, where := range slices.Sorted(maps.Keys(b)) {
		line := where
		for _, group := range slices.Sorted(maps.Keys(b[where])) {
			if n := b[where][group]; n > 0 {
				line += fmt.Sprintf(" %s=%d", group, n)
			}
		}
		if line != where {
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

// compareWith returns the numbers that are higher now than in the baseline, and
// the lower ones.
func (b baseline) compareWith(now baseline) (risen, fallen []string) {
	all := maps.Clone(b)
	maps.Copy(all, now)
	for _, where := range slices.Sorted(maps.Keys(all)) {
		groups := map[string]int{}
		maps.Copy(groups, b[where])
		maps.Copy(groups, now[where])
		for _, group := range slices.Sorted(maps.Keys(groups)) {
			had, has := b[where][group], now[where][group]
			line := fmt.Sprintf("%s: %s: %d findings, and the baseline has %d", where, group, has, had)
			switch {
			case has > had:
				risen = append(risen, line)
			case has < had:
				fallen = append(fallen, line)
			}
		}
	}
	return risen, fallen
}

// checkRatchet returns what is wrong with the baseline in path, given what the
// tree has now. With update it writes lower numbers, and all numbers if there
// is no file yet.
func checkRatchet(path string, now baseline, update bool) ([]string, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && update {
		return nil, os.WriteFile(path, []byte(now.String()), 0o644)
	}
	if err != nil {
		return nil, err
	}
	was, err := parseBaseline(string(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	risen, fallen := was.compareWith(now)
	var problems []string
	for _, line := range risen {
		where, rest, _ := strings.Cut(line, ":")
		group, _, _ := strings.Cut(strings.TrimSpace(rest), ":")
		problems = append(problems, fmt.Sprintf("%s. List them: go test ./internal/archtest -run Show -v -show %s -group %s", line, where, group))
	}
	if update && len(risen) == 0 {
		return nil, os.WriteFile(path, []byte(now.String()), 0o644)
	}
	if !update {
		for _, line := range fallen {
			problems = append(problems, line+". Lower it: go test ./internal/archtest -update")
		}
	}
	return problems, nil
}

// checkBaseline fails the test if the numbers of findings differ from a file
// in testdata.
func checkBaseline(t *testing.T, name string, findings map[string][]finding) {
	t.Helper()
	path := filepath.Join(*treeFlag, "internal/archtest/testdata", name)
	problems, err := checkRatchet(path, countFindings(findings), *updateFlag)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}
