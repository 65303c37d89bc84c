//go:build long

package modules

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/semaphore"

	"slipway.dev/slipway/internal/bundle/pack"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/testutil/golden"
)

var (
	//go:embed templates/settings.go.tmpl
	settingsShow string
	//go:embed templates/settings-kubelet.go.tmpl
	settingsKubelet string
	//go:embed templates/settings-etcd.go.tmpl
	settingsEtcd string
)

const settingsMain = `package main

import (
	"k8s.io/kubernetes/cmd/%s/app"
	"slipway.build/kubernetes/show"
)

func main() { show.Settings(app.%s().Flags()) }
`

// settingsPrograms are programs that print the settings of the components that a
// cluster file has settings of.
func settingsPrograms() map[string]string {
	out := map[string]string{"kubelet": settingsKubelet}
	for name, command := range map[string]string{
		"kube-apiserver": "NewAPIServerCommand", "kube-controller-manager": "NewControllerManagerCommand",
		"kube-proxy": "NewProxyCommand", "kube-scheduler": "NewSchedulerCommand",
	} {
		out[name] = fmt.Sprintf(settingsMain, name, command)
	}
	return out
}

// TestSettings_EqualPrograms compares the tables of package settings with the programs of the newest
// listed patch of each minor, compiled as for a bundle. It needs the module proxy, and up
// to twenty minutes for a minor, so it has a build tag:
//
//	SLIPWAY_SETTINGS=1.37 go test -tags long -timeout 60m -run '^TestSettings_EqualPrograms$' ./internal/bundle/source/modules -update
//
// SLIPWAY_SETTINGS names minors, such as "1.36,1.37"; all are the default.
func TestSettings_EqualPrograms(t *testing.T) {
	asked := strings.Split(cmp.Or(os.Getenv("SLIPWAY_SETTINGS"), "all"), ",")
	catalogue, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	newest := map[string]release.Release{}
	for _, version := range catalogue.SupportedVersions() {
		r, err := catalogue.ResolveVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		newest[strings.TrimPrefix(version[:strings.LastIndex(version, ".")], "v")] = r
	}
	for minor, r := range newest {
		if asked[0] == "all" || slices.Contains(asked, minor) {
			t.Run(minor, func(t *testing.T) {
				golden.Check(t, filepath.Join("../../../release/settings/data", minor+".txt"), settingsTable(t, r))
			})
		}
	}
}

// settingsTable compiles the programs of a release, and has each print its settings.
func settingsTable(t *testing.T, r release.Release) string {
	tool, err := newGoTool(t.Context(), nil, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	unit := kubernetesUnit(r)
	kube, store := unit.Modules[0], etcdUnit(r.Etcd).Modules[0]
	kube.Files, kube.Programs = map[string]string{"show/show.go": settingsShow}, map[string]string{}
	for name, main := range settingsPrograms() {
		kube.Files[name+"/main.go"], kube.Programs["./"+name] = main, name
	}
	store.Require, store.Files, store.Programs = nil, map[string]string{"etcd/main.go": settingsEtcd}, map[string]string{"./etcd": "etcd"}

	j := &job{
		unit: unit, arch: runtime.GOARCH, release: r, tool: tool, turn: semaphore.NewWeighted(1),
		scratch: t.TempDir(), report: func(source.Progress) {},
	}
	var programs []pack.Member
	for i, m := range []module{kube, store} {
		members, _, err := j.compileModule(t.Context(), i, m)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, members...)
	}
	lines, gates := []string{}, map[string][]string{}
	for _, p := range programs {
		for _, line := range settingsOf(t, p) {
			if gate, ok := strings.CutPrefix(line, "gate "); ok {
				gates[gate] = append(gates[gate], p.Name)
			} else {
				lines = append(lines, "flag "+p.Name+" "+line)
			}
		}
	}
	for gate, known := range gates {
		if slices.Sort(known); len(known) < len(settingsPrograms()) {
			gate += " " + strings.Join(known, ",")
		}
		lines = append(lines, "gate "+gate)
	}
	slices.Sort(lines)
	lines = append([]string{fmt.Sprintf("# Flags and feature gates of Kubernetes %s and etcd %s, made by TestSettings_EqualPrograms "+
		"of internal/bundle/source/modules.",
		r.Kubernetes, r.Etcd)}, lines...)
	return strings.Join(lines, "\n") + "\n"
}

// settingsOf are the lines that a program prints. etcd prints its help, too.
func settingsOf(t *testing.T, program pack.Member) []string {
	var out bytes.Buffer
	if err := runCommand(t.Context(), command{path: program.Path, argv: []string{program.Name}, env: os.Environ(), stdout: &out}); err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSpace(line)
		if program.Name == "etcd" {
			if name, ok := strings.CutPrefix(line, "--"); ok {
				lines[strings.Fields(name)[0]] = true
			}
			continue
		}
		lines[strings.TrimPrefix(line, "flag ")] = true
	}
	return slices.Collect(maps.Keys(lines))
}
