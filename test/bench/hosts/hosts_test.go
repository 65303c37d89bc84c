//go:build linux

package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestParseNumbers_RefusesInvalidHostCounts(t *testing.T) {
	for _, tt := range []struct {
		name, reason, text string
		want               []int
		ok                 bool
	}{
		{"none", "Ansible can be left out", "", nil, true},
		{"several", "in the order given", "300,10", []int{300, 10}, true},
		{"zero", "nothing is measured with no hosts", "0", nil, false},
		{"too many", "there are no addresses for them", "10,10001", nil, false},
		{"no number", "a mistake", "10,many", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseNumbers(tt.text)
			if d := cmp.Diff(tt.want, got); d != "" || (err == nil) != tt.ok {
				t.Errorf("%s: %v (-want +got):\n%s", tt.reason, err, d)
			}
		})
	}
}

// TestNewHost_SharesNothingWithOtherHosts checks that each host has an address in the
// network of the loopback link, and a separate name, directory and machine ID.
func TestNewHost_SharesNothingWithOtherHosts(t *testing.T) {
	network := netip.MustParsePrefix("10.64.0.0/16")
	seen := map[string]bool{}
	for n := range maxHosts {
		h := newHost(n, "/hosts")
		ip, err := netip.ParseAddr(h.Address)
		if err != nil || !network.Contains(ip) {
			t.Fatalf("host %d has the address %q", n, h.Address)
		}
		for _, own := range []string{h.Address, h.Name, h.Dir, machineID(h.Name)} {
			if seen[own] {
				t.Fatalf("host %d shares %q with another", n, own)
			}
			seen[own] = true
		}
	}
}

func TestMissingPreparation_NamesMissingSetting(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		file, text   string // written after a whole preparation
		want         string
	}{
		{"whole", "nothing is missing", "upper/etc/timezone", "UTC\n", ""},
		{"parameter", "written in the file that stands for it", "kernel/kernel.panic", "0\n", "kernel.panic holds"},
		{"name", "for the next boot", "upper/etc/hostname", "unprepared\n", "etc/hostname holds"},
		{"names", "those of others do not count", "upper/etc/hosts", "10.64.0.2 h00002\n", "etc/hosts lacks"},
		{"swap", "would be on after a boot", "upper/etc/fstab", "/dev/vda1 / ext4\n/dev/vda2 none swap sw 0 0\n", "swap is in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(0, t.TempDir())
			if err := h.populateHost(false); err != nil {
				t.Fatal(err)
			}
			if h.missingPreparation() == "" {
				t.Error("a fresh host counts as prepared")
			}
			for path, text := range map[string]string{
				h.parameterFile("vm/max_map_count"): "262144\n", h.parameterFile("fs/inotify/max_user_instances"): "8192\n",
				h.parameterFile("kernel/panic"): "10\n", h.hostFile("etc/hostname"): "h00001\n",
				h.hostFile("etc/hosts"):                       "127.0.0.1 localhost\n10.64.0.1 h00001\n",
				h.hostFile("etc/fstab"):                       "/dev/vda1 / ext4\n# /dev/vda2 none swap sw 0 0\n",
				h.hostFile("etc/sysctl.d/90-slipway.conf"):    "net.ipv4.ip_forward = 1\n",
				h.hostFile("etc/modules-load.d/slipway.conf"): "overlay\nbr_netfilter\n",
				filepath.Join(h.Dir, tt.file):                 tt.text,
			} {
				if err := writeFile(path, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := h.missingPreparation(); tt.want == "" != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q: %s", got, tt.want, tt.reason)
			}
		})
	}
}

func TestDescribeChanges_NamesEachDifference(t *testing.T) {
	before := state{parts: map[string]string{"/etc/hosts": "a\nb", "/proc/swaps": "none"}, clock: time.Hour}
	for _, tt := range []struct {
		name, reason string
		now          state
		want         []string
	}{
		{"nothing", "a clock that is steered goes by another rate", state{before.parts, time.Hour + time.Millisecond}, nil},
		{
			"content", "the line is named",
			state{map[string]string{"/etc/hosts": "a\nc", "/proc/swaps": "none"}, time.Hour},
			[]string{`/etc/hosts changed: "b" → "c"`},
		},
		{
			"came and went", "both are changes",
			state{map[string]string{"/etc/hosts": "a\nb", "/var/lib/slipway": "d"}, time.Hour},
			[]string{"/proc/swaps is gone", "/var/lib/slipway is new"},
		},
		{"clock", "set back", state{before.parts, 0}, []string{"the clock was moved by 1h0m0s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, before.describeChanges(tt.now)); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, d)
			}
		})
	}
}

// TestRecordMachine_RecordsFilesAndEqualsItself checks that important files are recorded,
// and that a record has no difference from itself.
func TestRecordMachine_RecordsFilesAndEqualsItself(t *testing.T) {
	s, err := recordMachine()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/etc/hosts", "/proc/sys/vm/overcommit_memory", "mounts"} {
		if s.parts[path] == "" {
			t.Errorf("%s is not looked at", path)
		}
	}
	if changed := s.describeChanges(s); changed != nil {
		t.Errorf("it differs from itself: %v", changed)
	}
}

// TestPlaybooks_SetSameParameters checks that both playbooks set the same kernel
// parameters, and that each parameter without a network namespace is redirected to a
// file.
func TestPlaybooks_SetSameParameters(t *testing.T) {
	var sets []map[string]string
	for _, text := range []string{playbook, merged} {
		var plays []struct {
			Vars struct {
				Parameters map[string]string `json:"parameters"`
			} `json:"vars"`
		}
		if err := yaml.Unmarshal([]byte(text), &plays); err != nil {
			t.Fatal(err)
		}
		sets = append(sets, plays[0].Vars.Parameters)
	}
	if d := cmp.Diff(sets[0], sets[1]); d != "" {
		t.Errorf("the playbooks differ (-by modules +merged):\n%s", d)
	}
	covered := sharedParameters()
	for name := range sets[0] {
		if _, ok := covered[strings.ReplaceAll(name, ".", "/")]; !ok && !strings.HasPrefix(name, "net.") {
			t.Errorf("%s would reach the machine's own kernel", name)
		}
	}
}

func TestClusterFile_ListsEveryHostWithRole(t *testing.T) {
	hosts := []host{newHost(0, ""), newHost(1, "")}
	var c struct {
		Spec struct {
			SSH   struct{ PrivateKeyFile string }
			Hosts []struct {
				Name, Address string
				Roles         []string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(clusterFile(hosts, "/k")), &c); err != nil {
		t.Fatal(err)
	}
	if c.Spec.SSH.PrivateKeyFile != "/k" || len(c.Spec.Hosts) != 2 {
		t.Errorf("got %+v", c)
	}
	var roles []string
	for i, h := range c.Spec.Hosts {
		if h.Name != hosts[i].Name || h.Address != hosts[i].Address {
			t.Errorf("host %d is %+v", i, h)
		}
		roles = append(roles, h.Roles...)
	}
	if d := cmp.Diff([]string{"control-plane", "worker"}, roles); d != "" {
		t.Error(d)
	}
}

// TestBenchmarkPage_ListsEveryDifference checks that the documentation lists every
// redirected or omitted step next to the figures.
func TestBenchmarkPage_ListsEveryDifference(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range listDifferences() {
		if !strings.Contains(string(doc), "| "+d.What+" | "+d.How+" |") {
			t.Errorf("docs/benchmarks.md lacks: | %s | %s |", d.What, d.How)
		}
	}
}

func TestListVerdicts_ComparesFiguresWithTargets(t *testing.T) {
	at := func(hosts int, tool string, again bool, wall, cpu time.Duration, peak int64) figure {
		return figure{Hosts: hosts, Tool: tool, Again: again, Wall: wall, CPU: cpu, Peak: peak}
	}
	few := at(10, toolSlipway, false, time.Second, 100*time.Millisecond, 50e6)
	for _, tt := range []struct {
		name, reason string
		figures      []figure
		want         []string
	}{
		{"nothing", "no figures, no verdicts", nil, nil},
		{"one size", "growth is between two", []figure{few}, nil},
		{"met", "as fast as is asked for, and no more a host among many", []figure{
			few, at(100, toolSlipway, false, 10*time.Second, 2*time.Second, 100e6), at(10, toolAnsible, false, 50*time.Second, 0, 0),
		}, []string{
			"met 50 times, 10 hosts", "met 20.0 ms, 100 hosts", "met 1.00 MB, 100 hosts",
			"met 1.00 times as long a host among 100 as among 10",
		}},
		{"missed", "each by a little", []figure{
			few, at(100, toolSlipway, false, 12*time.Second, 2100*time.Millisecond, 101e6), at(10, toolAnsible, false, 49*time.Second, 0, 0),
		}, []string{
			"missed 49 times, 10 hosts", "missed 21.0 ms, 100 hosts", "missed 1.01 MB, 100 hosts",
			"missed 1.20 times as long a host among 100 as among 10",
		}},
		{"unchanged", "asks for more", []figure{
			at(10, toolSlipway, true, time.Second, 0, 0), at(10, toolAnsible, true, 99*time.Second, 0, 0),
		}, []string{"missed 99 times, 10 hosts"}},
		{"not finished", "it took longer than that", []figure{
			few, {Hosts: 10, Tool: toolAnsible, Wall: 60 * time.Second, Over: true},
		}, []string{"met more than 60 times, 10 hosts"}},
		{"not finished itself", "there is nothing to hold against", []figure{
			{Hosts: 10, Tool: toolSlipway, Wall: time.Second, Over: true}, at(10, toolAnsible, false, time.Minute, 0, 0),
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, v := range listVerdicts(slices.Clone(tt.figures)) {
				word := "missed "
				if v.met {
					word = "met "
				}
				got = append(got, word+v.measured)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, d)
			}
		})
	}
}

func TestMedianFigure_ReturnsRunWithMedianTime(t *testing.T) {
	got := medianFigure([]figure{{Wall: 3}, {Wall: 1, CPU: 7}, {Wall: 2, CPU: 9}})
	if got.Wall != 2 || got.CPU != 9 {
		t.Errorf("the figures of another run: %+v", got)
	}
}

func TestParseWrites_CountsWritesOfEachResource(t *testing.T) {
	for _, tt := range []struct {
		name, reason, text string
		want               map[string]int64
	}{
		{"none", "an answer without such lines is not from an API server", "go_threads 9\n", nil},
		{
			"several", "reads and other metrics do not count", `# TYPE etcd_request_duration_seconds histogram
etcd_request_duration_seconds_bucket{group="",operation="create",resource="secrets",le="0.05"} 3
etcd_request_duration_seconds_sum{group="",operation="create",resource="secrets"} 0.2
etcd_request_duration_seconds_count{group="",operation="create",resource="secrets"} 3
etcd_request_duration_seconds_count{group="",operation="update",resource="secrets"} 4
etcd_request_duration_seconds_count{group="",operation="get",resource="secrets"} 50
etcd_request_duration_seconds_count{group="slipway.dev",operation="delete",resource="operationlogs"} 1e+02
`, map[string]int64{"secrets": 7, "operationlogs": 100},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseWrites([]byte(tt.text))
			if d := cmp.Diff(tt.want, got); d != "" || (err == nil) != (tt.want != nil) {
				t.Errorf("%s: %v (-want +got):\n%s", tt.reason, err, d)
			}
		})
	}
}

func TestRecordVerdicts_CompareFirstRunsOfMostHosts(t *testing.T) {
	api := func(hosts int, wall time.Duration, use apiUse) figure {
		return figure{Hosts: hosts, Tool: toolAPI, Wall: wall, API: &use}
	}
	files := []figure{{Wall: 12 * time.Second}, {Wall: 10 * time.Second}, {Wall: 30 * time.Second}}
	small := comparison{Hosts: 10, Files: files[1:2], API: []figure{api(10, time.Minute, apiUse{})}}
	for _, tt := range []struct {
		name, reason string
		api          figure
		want         []string
	}{
		{
			"met", "against the median of files",
			api(1000, 13700*time.Millisecond, apiUse{Total: 100, Lasted: 10 * time.Second, ClusterStatus: 1 << 16}),
			[]string{"met +14.2 %, 1000 hosts", "met 10.0, 1000 hosts", "met 65536 bytes, 1000 hosts"},
		},
		{
			"missed", "each by a little",
			api(1000, 13900*time.Millisecond, apiUse{Total: 101, Lasted: 10 * time.Second, OperationStatus: 1<<16 + 1}),
			[]string{"missed +15.8 %, 1000 hosts", "missed 10.1, 1000 hosts", "missed 65537 bytes, 1000 hosts"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			large := comparison{Hosts: 1000, Files: files, API: []figure{tt.api}}
			var got []string
			for _, v := range recordVerdicts([]comparison{small, large, {Hosts: 1000, Again: true}}) {
				word := "missed "
				if v.met {
					word = "met "
				}
				got = append(got, word+v.measured)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, d)
			}
		})
	}
}
