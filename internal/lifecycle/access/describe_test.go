package access

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/spec/live"
)

// newTestAPI serves GET requests by path. The answer "forbidden" has status 403, a missing
// path 404.
func newTestAPI(t *testing.T, answers map[string]string) (kubeconfig []byte) {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("Describe sent %s %s", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		code, answer := http.StatusNotFound, ""
		if a, ok := answers[r.URL.Path]; ok {
			code, answer = http.StatusOK, a
		}
		if answer == "forbidden" {
			code = http.StatusForbidden
		}
		if code != http.StatusOK {
			answer = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"code":%d}`,
				strings.ReplaceAll(http.StatusText(code), " ", ""), code)
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, answer)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %s, certificate-authority-data: %s}}]
users: [{name: u, user: {token: abc}}]
`, srv.URL, base64.StdEncoding.EncodeToString(ca))
}

func configMapAnswer(key, value string) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"y"},"data":{%q:%q}}`, key, value)
}

// smallCluster returns the answers of a small cluster.
func smallCluster() map[string]string {
	const system = "/api/v1/namespaces/kube-system/configmaps/"
	return map[string]string{
		system + "kubeadm-config": configMapAnswer("ClusterConfiguration",
			"clusterName: lab\nkubernetesVersion: v1.37.1\ncontrolPlaneEndpoint: api.lab.example.com:6443\n"+
				"networking: {dnsDomain: cluster.local, podSubnet: 10.245.0.0/16, serviceSubnet: 10.97.0.0/16}\n"),
		system + "kubelet-config": configMapAnswer("kubelet", "maxPods: 80\n"),
		system + "kube-proxy":     configMapAnswer("config.conf", "mode: nftables\n"),
		system + "coredns":        configMapAnswer("Corefile", ".:53 {\n  forward . 192.0.2.53\n}\n"),
		"/api/v1/namespaces/kube-flannel/configmaps/kube-flannel-cfg": configMapAnswer("net-conf.json", `{"Backend":{"Type":"vxlan"}}`),
		"/apis/apps/v1/daemonsets":                                    `{"kind":"DaemonSetList","apiVersion":"apps/v1","items":[]}`,
		"/api/v1/nodes": `{"kind":"NodeList","apiVersion":"v1","items":[{"kind":"Node","apiVersion":"v1",
			"metadata":{"name":"lab-1","labels":{"node-role.kubernetes.io/control-plane":""}},
			"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.11"}],
			"nodeInfo":{"kubeletVersion":"v1.37.1","containerRuntimeVersion":"containerd://2.1.0"}}}]}`,
	}
}

func newTestAccess(t *testing.T) *Access {
	t.Helper()
	known, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Catalogue: known})
}

func TestDescribe_ReadsConfigurationOfCluster(t *testing.T) {
	d, err := newTestAccess(t).Describe(t.Context(), newTestAPI(t, smallCluster()), live.Options{User: "ops"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"name: lab\n", "user: ops\n", "domain: api.lab.example.com\n", "version: v1.37.1\n", "proxyMode: nftables\n", "maxPods: 80\n",
		"podCIDR: [10.245.0.0/16]\n", "backend: vxlan\n", "upstream: [192.0.2.53]\n", "address: 10.0.0.11\n",
	} {
		if !strings.Contains(string(d.Text), want) {
			t.Errorf("there is no %q in\n%s", want, d.Text)
		}
	}
}

func TestDescribe_RefusesUnreadableCluster(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(answers map[string]string)
		conf   string
		want   string
	}{
		{
			"a cluster of something else",
			func(a map[string]string) { delete(a, "/api/v1/namespaces/kube-system/configmaps/kubeadm-config") }, "", idNotKubeadm,
		},
		{
			"what may not be read is not left out", func(a map[string]string) { a["/apis/apps/v1/daemonsets"] = "forbidden" },
			"", idClusterUnreadable,
		},
		{
			"a part that may not be read",
			func(a map[string]string) { a["/api/v1/namespaces/kube-system/configmaps/kube-proxy"] = "forbidden" }, "", idClusterUnreadable,
		},
		{"no kubeconfig", nil, "kind: Config\napiVersion: v1\n", idKubeconfigUnusable},
		{"nothing there", nil, strings.Replace(string(newTestAPI(t, nil)), "https://127.0.0.1:", "https://127.0.0.1:1#", 1), idClusterUnreadable},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			conf := []byte(tc.conf)
			if tc.conf == "" {
				answers := smallCluster()
				tc.change(answers)
				conf = newTestAPI(t, answers)
			}
			_, err := newTestAccess(t).Describe(t.Context(), conf, live.Options{})
			var list diag.List
			if !errors.As(err, &list) || list[0].ID != tc.want {
				t.Errorf("want %s, got %v", tc.want, err)
			}
		})
	}
}
