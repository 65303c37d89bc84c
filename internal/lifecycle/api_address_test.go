package lifecycle

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/pki/pkitest"
)

// Kubeconfigs and connections use a control plane that answers.
func TestKubeconfig_UsesControlPlaneThatAnswers(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	w.API.PutObject("/readyz", object{"ok": true})
	kept, err := w.service().SavedKubeconfig(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, reason string
		doors        []string
		down         string // the machine that is off
		want         string
	}{
		{"all answer", "the first address is used", []string{"192.0.2.11", "192.0.2.12", "192.0.2.13"}, "", "192.0.2.11"},
		{"the first is dead", "another control plane answers", []string{"192.0.2.12", "192.0.2.13"}, "cp1", "192.0.2.12"},
		{"one is left", "the last one is used", []string{"192.0.2.13"}, "cp2", "192.0.2.13"},
		{"none answers", "the saved address is used, and kubectl reports the error", nil, "cp1", "192.0.2.11"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.APIAddresses = tc.doors
			if m := w.Hosts[tc.down]; m != nil {
				m.Down = errDown
				defer func() { m.Down = nil }()
			}
			s, server := w.service(), []byte("server: https://"+tc.want+":6443\n")
			for _, live := range []bool{false, true} {
				conf, _, err := s.Kubeconfig(t.Context(), "prod", live)
				if err != nil || !bytes.Contains(conf, server) || !bytes.Contains(conf, []byte("tls-server-name: example.com")) {
					t.Errorf("live %t: %s, %v; want %s: %s", live, conf, err, tc.want, tc.reason)
				}
			}
			c, err := s.Records.Clusters().Load(t.Context(), "prod")
			if err != nil {
				t.Fatal(err)
			}
			env, err := s.bundles.Environment(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			path, done, _, err := s.WriteKubeconfigFile(t.Context(), env)
			if err != nil {
				t.Fatal(err)
			}
			conf, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(conf, server) {
				t.Errorf("kubectl uses %s, %v; want %s: %s", conf, err, tc.want, tc.reason)
			}
			done()
			if _, err := os.Stat(path); (path != s.Records.Kubeconfigs().Location("prod")) != errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v: only the saved kubeconfig may remain", path, err)
			}
			if now, err := s.SavedKubeconfig(t.Context(), "prod"); err != nil || !bytes.Equal(now, kept) {
				t.Errorf("the saved kubeconfig has changed: %s, %v", now, err)
			}
		})
	}
}

// TestKubeconfig_SkipsUntrustedControlPlane: a control plane whose kubeconfig runs programs, or trusts another
// CA, is reported, and the next one is asked. No text of that kubeconfig is used.
func TestKubeconfig_SkipsUntrustedControlPlane(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	const file, warned = "/etc/kubernetes/admin.conf", clusterstate.IDUntrusted + " warning "
	other := pkitest.NewAuthority(t, "kubernetes", certTime.Add(-certYear), certTime.Add(certYear))
	cert, key := other.IssueCertificate(t, "kubernetes-admin", certTime.Add(certDay))
	foreign := pkitest.MakeKubeconfig("https://api.prod.internal:6443", other.Cert, "", cert, key)
	good := w.Hosts["cp1"].Files[file]
	runs := strings.Replace(good, "  user:\n",
		"  user:\n    exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: canary}\n", 1)
	token := regexp.MustCompile(`(?m)^ +client-.*-data: .*$`).ReplaceAllString(good, "    tokenFile: /canary")
	kept, err := w.service().SavedKubeconfig(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		files [3]string
		want  []string // warnings; nil is a refusal
	}{
		{"honest", [3]string{good, good, good}, []string{}},
		{"a program next to certificates", [3]string{runs, good, good}, []string{}},
		{"one with another CA", [3]string{foreign, good, good}, []string{warned + "cp1"}},
		{"one with a file's name, one with nonsense", [3]string{token, "\x00", good}, []string{warned + "cp1", warned + "cp2"}},
		{"all with another CA", [3]string{foreign, foreign, foreign}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for i, text := range tc.files {
				w.Hosts[fmt.Sprintf("cp%d", i+1)].Files[file] = text
			}
			conf, warnings, err := w.service().Kubeconfig(t.Context(), "prod", true)
			if tc.want == nil {
				var list diag.List
				if !errors.As(err, &list) || len(list) != 3 || list[2].Host != "cp3" || list[2].ID != clusterstate.IDUntrusted {
					t.Errorf("got %v", err)
				}
				return
			}
			got := []string{}
			for _, d := range warnings {
				got = append(got, fmt.Sprintf("%s %s %s", d.ID, d.Severity, d.Host))
			}
			if d := cmp.Diff(tc.want, got); d != "" || err != nil {
				t.Errorf("warnings (-want +got), %v:\n%s", err, d)
			}
			if !bytes.Equal(conf, kept) {
				t.Errorf("the kubeconfig differs:\n%s", conf)
			}
		})
	}
}

// TestKubeconfig_ChecksSavedOneOfEarlierVersion: a kubeconfig that an earlier version saved is checked
// before it is used.
func TestKubeconfig_ChecksSavedOneOfEarlierVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.create(event.Succeeded)
	s := w.service()
	for _, tc := range []struct {
		name, text string
		ok         bool
	}{
		{"a program next to certificates", strings.Replace(string(w.stored()), "  user:\n", "  user:\n    exec: {command: canary}\n", 1), true},
		{"no certificate", "apiVersion: v1\nkind: Config\n", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.WriteFile(s.Records.Kubeconfigs().Location("prod"), []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			conf, _, err := s.Kubeconfig(t.Context(), "prod", false)
			if !tc.ok {
				refusal(t, err, "record-damaged")
				return
			}
			if _, bad := kubeconfig.ParseAdmin(conf); bad != nil || err != nil {
				t.Errorf("%s, %v, %v", conf, bad, err)
			}
			c, err := s.Records.Clusters().Load(t.Context(), "prod")
			if err != nil {
				t.Fatal(err)
			}
			env, err := s.bundles.Environment(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			path, done, _, err := s.WriteKubeconfigFile(t.Context(), env)
			if err != nil || path == s.Records.Kubeconfigs().Location("prod") {
				t.Errorf("kubectl is given %s, %v", path, err)
			}
			done()
		})
	}
}

// A reachable load balancer comes first, by name if the file has no address for it. If
// this machine cannot reach it, a control plane comes first.
func TestKubeconfig_PrefersReachableLoadBalancer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	c := w.Manifest()
	c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointExternal
	w.do(creating(c), event.Succeeded)
	w.API.PutObject("/readyz", object{"ok": true})
	for want, doors := range map[string][]string{
		"example.com": {"example.com", "192.0.2.11"},
		"192.0.2.11":  {"192.0.2.11"},
	} {
		w.APIAddresses = doors
		conf, _, err := w.service().Kubeconfig(t.Context(), "prod", false)
		if err != nil || !bytes.Contains(conf, []byte("server: https://"+want+":6443\n")) {
			t.Errorf("%s, %v; want %s", conf, err, want)
		}
	}
	list, err := w.service().Clusters(t.Context())
	if err != nil || list[0].Endpoint != "example.com:6443" {
		t.Errorf("clusters %+v, %v", list, err)
	}
}
