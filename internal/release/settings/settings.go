// Package settings lists the flags and the feature gates of the components for each
// supported minor version of Kubernetes. The tables are generated from the programs:
// TestSettings_EqualPrograms of internal/bundle/source/modules compiles them, and compares.
package settings

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/Masterminds/semver/v3"
)

//go:embed data/*.txt
var data embed.FS

// The components, named by their programs.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
	Etcd              = "etcd"
)

// A Table has the settings of one minor version.
type Table struct {
	// Kubernetes and Etcd are the versions of the programs in the table: "v1.37.1",
	// "3.7.0".
	Kubernetes, Etcd string
	// Gates are the feature gates by name.
	Gates map[string]Gate

	flags map[string]map[string]string
}

// A Gate is a feature gate.
type Gate struct {
	// Stage is alpha, beta, ga or deprecated.
	Stage   string
	Default bool
	// Locked reports whether a component rejects any value except Default.
	Locked bool

	only []string
}

// IsKnownTo reports whether a component has the gate: a few gates are unknown to some.
func (g Gate) IsKnownTo(component string) bool {
	return len(g.only) == 0 || slices.Contains(g.only, component)
}

// FlagType returns the type of a component's flag, in the program's own notation ("bool",
// "duration"), or "" for all flags of etcd; ok reports whether the flag exists.
func (t Table) FlagType(component, name string) (kind string, ok bool) {
	kind, ok = t.flags[component][name]
	return kind, ok
}

// FlagNames returns the names of a component's flags, sorted.
func (t Table) FlagNames(component string) []string {
	var out []string
	for name := range t.flags[component] {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Minor returns the minor version of the table: "1.37".
func (t Table) Minor() string {
	v, err := semver.NewVersion(t.Kubernetes)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", v.Major(), v.Minor())
}

// IsOlderThan reports whether a version is newer than the programs of the table. Such a version
// can have more settings.
func (t Table) IsOlderThan(version string) bool {
	a, errA := semver.NewVersion(version)
	b, errB := semver.NewVersion(t.Kubernetes)
	return errA == nil && errB == nil && a.GreaterThan(b)
}

// ReadTables returns the tables of all minors, oldest first. Callers share them and must not change
// them. The error is damage to the tables themselves.
func ReadTables() ([]Table, error) { return tables() }

// tables parses the tables once: a server validates many clusters, and the tables are large.
var tables = sync.OnceValues(parseTables)

func parseTables() ([]Table, error) {
	entries, err := data.ReadDir("data")
	if err != nil {
		return nil, err
	}
	var out []Table
	for _, e := range entries {
		text, err := data.ReadFile(path.Join("data", e.Name()))
		if err != nil {
			return nil, err
		}
		t, err := parseTable(string(text))
		if err == nil && t.Minor()+".txt" != e.Name() {
			err = fmt.Errorf("it is for Kubernetes %q", t.Kubernetes)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the settings in %s: %w", e.Name(), err)
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Table) int {
		if b.IsOlderThan(a.Kubernetes) {
			return 1
		}
		return -1
	})
	return out, nil
}

// parseTable reads a table. Its lines are "flag COMPONENT NAME TYPE", without a type for
// etcd, and "gate NAME STAGE DEFAULT", then "locked" and the components that have the
// gate, unless all have it. The first line names the versions.
func parseTable(text string) (Table, error) {
	t := Table{Gates: map[string]Gate{}, flags: map[string]map[string]string{}}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && words[0] == "#":
			// "# Flags and feature gates of Kubernetes v1.37.1 and etcd 3.7.0, made by …"
			if _, err := fmt.Sscanf(line, "# Flags and feature gates of Kubernetes %s and etcd %s", &t.Kubernetes, &t.Etcd); err != nil {
				return t, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
			}
			t.Etcd = strings.TrimSuffix(t.Etcd, ",")
		case len(words) >= 3 && words[0] == "flag":
			if t.flags[words[1]] == nil {
				t.flags[words[1]] = map[string]string{}
			}
			t.flags[words[1]][words[2]] = strings.Join(words[3:], " ")
		case len(words) >= 4 && words[0] == "gate":
			g := Gate{Stage: words[2], Default: words[3] == "true"}
			for _, word := range words[4:] {
				if g.Locked = g.Locked || word == "locked"; word != "locked" {
					g.only = strings.Split(word, ",")
				}
			}
			t.Gates[words[1]] = g
		case len(words) > 0:
			return t, fmt.Errorf("%q is neither a flag nor a feature gate", strings.TrimSpace(line))
		}
	}
	return t, nil
}
