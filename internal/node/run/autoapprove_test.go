//go:build linux

package run

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/kubeletcsr"
	"slipway.dev/slipway/internal/node/op"
)

// requestOf is what the kubelet of a node asks for, with a field that only the API
// server knows.
func requestOf(t *testing.T, name, node, address string, status map[string]any) map[string]any {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		DNSNames: []string{node}, IPAddresses: []net.IP{net.ParseIP(address)},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"metadata": map[string]any{"name": name, "resourceVersion": "17", "uid": "u-" + name},
		"spec": map[string]any{
			"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), "signerName": kubeletcsr.Signer,
			"username": "system:node:" + node, "groups": []string{"system:nodes"}, "usages": []string{"digital signature", "server auth"},
		},
		"status": status,
	}
}

// TestAutoApprove: a control plane approves what kubelets of the cluster may ask for,
// as it was read, and leaves the rest pending.
func TestAutoApprove(t *testing.T) {
	list, err := json.Marshal(map[string]any{"items": []any{
		requestOf(t, "csr-good", "w1", "192.0.2.12", nil),
		requestOf(t, "csr-stolen", "w1", "192.0.2.11", map[string]any{}),
		requestOf(t, "csr-stranger", "w9", "192.0.2.12", nil),
		requestOf(t, "csr-done", "w1", "192.0.2.12", map[string]any{"conditions": []any{map[string]any{"type": "Denied"}}}),
		"not an object",
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	answer, put := filepath.Join(dir, "list"), filepath.Join(dir, "put")
	script := "#!/bin/sh\ncase $1 in get) cat " + answer + ";; put) printf '%s ' \"$2\" >>" + put + "; cat >>" + put + ";; esac\n"
	program := filepath.Join(dir, "kubectl")
	if err := os.WriteFile(answer, list, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	r := Runner{Root: dir, State: filepath.Join(dir, "state")}
	approved, err := r.AutoApprove(t.Context(), op.AutoApproval{
		Get: []string{program, "get"}, Put: []string{program, "put", "--raw=/requests/"}, Suffix: "/approval",
		Kubelets: []op.KubeletIdentity{{Name: "cp1", Addresses: []string{"192.0.2.11"}}, {Name: "w1", Addresses: []string{"192.0.2.12"}}},
	})
	if d := cmp.Diff([]string{"csr-good of system:node:w1"}, approved); d != "" {
		t.Errorf("approved (-want +got):\n%s", d)
	}
	for _, want := range []string{`"csr-stolen"`, "192.0.2.11 is not an address of node w1", `"csr-stranger"`, "not a node of the cluster"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	sent, err := os.ReadFile(put)
	if err != nil {
		t.Fatal(err)
	}
	where, body, _ := strings.Cut(string(sent), " ")
	if where != "--raw=/requests/csr-good/approval" {
		t.Errorf("it was sent to %s", where)
	}
	var object struct {
		Metadata struct{ ResourceVersion, UID string }
		Status   struct {
			Conditions []struct{ Type, Status, Reason string }
		}
	}
	if err := json.Unmarshal([]byte(body), &object); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if object.Metadata.ResourceVersion != "17" || object.Metadata.UID != "u-csr-good" {
		t.Errorf("the API server could not tell that it is what was read: %+v", object.Metadata)
	}
	if c := object.Status.Conditions; len(c) != 1 || c[0].Type != "Approved" || c[0].Status != "True" || c[0].Reason == "" {
		t.Errorf("the conditions are %+v", c)
	}
}
