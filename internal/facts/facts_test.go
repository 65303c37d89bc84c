package facts

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// fakeHost returns its results for one Check, and rejects every other call.
type fakeHost struct {
	remote.Host // nil: any other method ends the test
	results     []op.Result
	err         error
	asked       op.List
}

func (f *fakeHost) Check(_ context.Context, ops op.List) ([]op.Result, error) {
	f.asked = ops
	return f.results, f.err
}

func TestAsk_KeepsFactsAndErrors(t *testing.T) {
	lost := &remote.Error{Host: "a", Reason: remote.ConnectionLost, Cause: "gone"}
	answer := func(f op.HostFacts) []op.Result {
		raw, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		return []op.Result{{Kind: op.KindFacts, Status: op.Unchanged, Output: raw}}
	}
	tests := map[string]struct {
		reason  string
		results []op.Result
		err     error
		ok      bool
		is      error
	}{
		"facts": {"what it says is taken", answer(op.HostFacts{Arch: "arm64"}), nil, true, nil},
		"lost":  {"the reason stays for whoever judges", nil, lost, false, lost},
		"failed": {
			"an operation that failed has no facts",
			[]op.Result{{Status: op.Failed, Error: &op.Error{Reason: "Internal", Message: "no"}}},
			nil, false, nil,
		},
		"two answers": {"it was one question", append(answer(op.HostFacts{}), op.Result{}), nil, false, nil},
		"no JSON":     {"it is another version's", []op.Result{{Output: []byte("x")}}, nil, false, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			conn := &fakeHost{results: tt.results, err: tt.err}
			want := op.Facts{Ports: []int{1}}
			h := ReadHost(t.Context(), v1alpha1.Host{Name: "a"}, conn, want)
			if (h.Err == nil) != tt.ok || (h.Facts != nil) != tt.ok || tt.is != nil && !errors.Is(h.Err, tt.is) {
				t.Errorf("%s: got %+v", tt.reason, h)
			}
			if diff := cmp.Diff(op.List{want}, conn.asked); diff != "" {
				t.Errorf("asked: -want +got\n%s", diff)
			}
		})
	}
}

func TestSkew_CoversTheRoundTrip(t *testing.T) {
	for _, off := range []time.Duration{0, time.Hour, -time.Hour} {
		raw, err := json.Marshal(op.HostFacts{TimeUnix: time.Now().Add(off).Unix()})
		if err != nil {
			t.Fatal(err)
		}
		h := ReadHost(t.Context(), v1alpha1.Host{}, &fakeHost{results: []op.Result{{Output: raw}}}, op.Facts{})
		// The clock above was read before the question: by as much as this
		// machine was busy in between, the answer is old.
		if d := h.Skew - off; d > h.Uncertainty || d < -h.Uncertainty-time.Minute {
			t.Errorf("skew is %s ± %s, want %s", h.Skew, h.Uncertainty, off)
		}
	}
}

func TestDigest_IgnoresOrder(t *testing.T) {
	base := func() []Host {
		return []Host{
			{Spec: v1alpha1.Host{Name: "a"}, Facts: &op.HostFacts{MachineID: "1", Arch: "amd64", KernelFeatures: []string{"x", "y"}}},
			{Spec: v1alpha1.Host{Name: "b"}, Facts: &op.HostFacts{MachineID: "2", Arch: "amd64"}},
		}
	}
	tests := map[string]struct {
		reason string
		change func([]Host)
		same   bool
	}{
		"order of hosts":    {"a set has none", func(h []Host) { slices.Reverse(h) }, true},
		"order of features": {"nor has this one", func(h []Host) { slices.Reverse(h[0].Facts.KernelFeatures) }, true},
		"gauges": {"they differ at each look", func(h []Host) {
			f := h[0].Facts
			f.TimeUnix, f.BootID, f.Disks, f.Listeners = 5, "x", []op.Disk{{FreeBytes: 1}}, []op.Listener{{Port: 1}}
			h[0].Skew = time.Second
		}, true},
		"what an operation changes": {"its own doing does not make a plan stale", func(h []Host) {
			f := h[0].Facts
			f.Hostname, f.Swap, f.Ledger, f.Cluster, f.Present = "x", []string{"y"}, true, "c", []string{"/run"}
			f.Addresses, f.Routes = []op.Address{{Link: "cni0", Prefix: "10.244.0.1/24"}}, []string{"10.244.0.0/24"}
		}, true},
		"machine":  {"another machine under the name", func(h []Host) { h[0].Facts.MachineID = "3" }, false},
		"arch":     {"other programs are sent", func(h []Host) { h[0].Facts.Arch = "arm64" }, false},
		"cgroups":  {"the kubelet is set up by it", func(h []Host) { h[0].Facts.CgroupVersion = 1 }, false},
		"feature":  {"sysctls depend on it", func(h []Host) { h[0].Facts.KernelFeatures = []string{"x"} }, false},
		"right":    {"containerd is set up by it", func(h []Host) { h[0].Facts.ResourceCapability = true }, false},
		"silent":   {"a host that says nothing is not one that says little", func(h []Host) { h[0].Facts = nil }, false},
		"new name": {"tasks are named by it", func(h []Host) { h[0].Spec.Name = "c" }, false},
	}
	want := DigestOf(base())
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := base()
			tt.change(h)
			if got := DigestOf(h); (got == want) != tt.same {
				t.Errorf("%s: digests are the same: %v, want %v", tt.reason, got == want, tt.same)
			}
		})
	}
	const pinned = "sha256:51097c66f2aa75e49135bfb719df8824139e6274ca81092550ac429eef03eb4e"
	if want != pinned {
		t.Errorf("the digest is %s, was %s: saved plans would be refused", want, pinned)
	}
}

func TestAddresses_PrefersIPv4(t *testing.T) {
	tests := map[string]struct {
		reason    string
		addresses []op.Address
		want      string
	}{
		"first": {
			"the order is the kernel's",
			[]op.Address{
				{Link: "lo", Prefix: "127.0.0.1/8"},
				{Link: "eth0", Prefix: "192.0.2.1/24"},
				{Link: "eth1", Prefix: "192.0.2.2/24"},
			},
			"192.0.2.1",
		},
		"IPv4 first": {
			"most networks are",
			[]op.Address{{Link: "eth0", Prefix: "2001:db8::1/64"}, {Link: "eth0", Prefix: "192.0.2.1/24"}},
			"192.0.2.1",
		},
		"IPv6 alone": {
			"some are not",
			[]op.Address{{Link: "eth0", Prefix: "fe80::1/64"}, {Link: "eth0", Prefix: "2001:db8::1/64"}},
			"2001:db8::1",
		},
		"containers'": {
			"others do not reach them",
			[]op.Address{
				{Link: "docker0", Prefix: "172.17.0.1/16"},
				{Link: "cni0", Prefix: "10.244.0.1/24"},
				{Link: "flannel.1", Prefix: "10.244.0.0/32"},
				{Link: "br-12ab", Prefix: "172.18.0.1/16"},
			},
			"",
		},
		"like lo":    {"only lo itself is", []op.Address{{Link: "lower", Prefix: "192.0.2.1/24"}}, "192.0.2.1"},
		"unreadable": {"it is passed over", []op.Address{{Link: "eth0", Prefix: "x"}}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := DefaultAddress(&op.HostFacts{Addresses: tt.addresses}); got != tt.want {
				t.Errorf("%s: got %q, want %q", tt.reason, got, tt.want)
			}
		})
	}
}

func TestOtherAddress_FindsTheSameNetwork(t *testing.T) {
	at := func(list ...string) (out []op.Address) {
		for i := 0; i < len(list); i += 2 {
			out = append(out, op.Address{Link: list[i], Prefix: list[i+1]})
		}
		return out
	}
	tests := map[string]struct {
		reason    string
		addresses []op.Address
		one, want string
	}{
		"same link": {
			"both lead to the same network",
			at("eth0", "2001:db8::9/64", "eth1", "192.0.2.1/24", "eth1", "fd00::1/64"), "192.0.2.1", "fd00::1",
		},
		"another link": {"better than none", at("eth1", "192.0.2.1/24", "eth0", "2001:db8::9/64"), "192.0.2.1", "2001:db8::9"},
		"several": {
			"the same one whatever the order",
			at("eth0", "192.0.2.1/24", "eth0", "fd00::2/64", "eth0", "fd00::1/64"), "192.0.2.1", "fd00::1",
		},
		"IPv6 first":  {"the other is IPv4 then", at("eth0", "fd00::1/64", "eth0", "192.0.2.1/24"), "fd00::1", "192.0.2.1"},
		"link-local":  {"it is no address for others", at("eth0", "192.0.2.1/24", "eth0", "fe80::1/64"), "192.0.2.1", ""},
		"containers'": {"nor is one of theirs", at("eth0", "192.0.2.1/24", "cni0", "fd00:244::1/64"), "192.0.2.1", ""},
		"translated": {
			"a host need not have the one it is reached by", at("eth0", "192.0.2.1/24", "eth0", "fd00::1/64"),
			"203.0.113.1", "fd00::1",
		},
		"no address": {"a name has no version", at("eth0", "fd00::1/64"), "cp1", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := OtherAddress(&op.HostFacts{Addresses: tt.addresses}, tt.one); got != tt.want {
				t.Errorf("%s: got %q, want %q", tt.reason, got, tt.want)
			}
		})
	}
}

func TestWanted_IsDeterministic(t *testing.T) {
	c := &v1alpha1.Cluster{}
	c.Spec.ControlPlaneEndpoint.Port = 8443
	got := WantedFacts(c)
	want := []int{2379, 2380, 2381, 8443, 8472, 10248, 10249, 10250, 10256, 10257, 10259}
	if diff := cmp.Diff(want, got.Ports); diff != "" {
		t.Errorf("ports: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(got, WantedFacts(c)); diff != "" {
		t.Errorf("asked twice, it differs:\n%s", diff)
	}
	for path := range LeftoverPaths() {
		if !slices.Contains(got.Paths, path) {
			t.Errorf("%s is not asked for", path)
		}
		// A new disk for the data holds no cluster.
		for _, disk := range []string{"/var/lib/etcd", "/var/lib/kubelet", "/var/lib/containerd"} {
			for _, there := range []string{disk, disk + "/lost+found"} {
				if ok, err := filepath.Match(path, there); ok || err != nil {
					t.Errorf("%s is taken for a cluster's, by %s, %v", there, path, err)
				}
			}
		}
	}
}
