//go:build linux

package executor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/kubeletcsr"
	"slipway.dev/slipway/internal/node/op"
)

// requestOf returns the certificate signing request of a node's kubelet, with fields that
// only the API server sets.
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

// A fakeKubectl responds to API requests from files, and saves the objects that are put.
type fakeKubectl struct {
	t   *testing.T
	dir string
}

// newFakeKubectl returns a kubectl that runs the given shell cases for "get PATH" and
// "put PATH". It saves the object of a put that has no case, and rejects other requests.
func newFakeKubectl(t *testing.T, cases string, files map[string]string) *fakeKubectl {
	t.Helper()
	k := &fakeKubectl{t: t, dir: t.TempDir()}
	script := "#!/bin/sh\ncd " + k.dir + "\ncase \"$1 $2\" in\n" + cases +
		"\nput*) printf '%s ' \"$2\" >>sent; cat >>sent; echo >>sent;;\n*) echo \"not expected: $1 $2\" >&2; exit 9;;\nesac\n"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(k.dir, "kubectl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *fakeKubectl) approve() ([]string, error) {
	program := filepath.Join(k.dir, "kubectl")
	r := Runner{Root: k.dir, State: filepath.Join(k.dir, "state")}
	return r.AutoApprove(k.t.Context(), op.AutoApproval{
		Get: []string{program, "get", "--raw=/requests"}, Put: []string{program, "put", "--raw=/requests"},
		Kubelets: []op.KubeletIdentity{{Name: "cp1", Addresses: []string{"192.0.2.11"}}, {Name: "w1", Addresses: []string{"192.0.2.12"}}},
	})
}

// sent returns the saved puts, one line for each: first the path, then the object.
func (k *fakeKubectl) sent() string {
	text, err := os.ReadFile(filepath.Join(k.dir, "sent"))
	if err != nil && !os.IsNotExist(err) {
		k.t.Fatal(err)
	}
	return string(text)
}

// page returns one page of the list of requests.
func page(t *testing.T, more string, items ...any) string {
	t.Helper()
	return marshal(t, map[string]any{"metadata": map[string]any{"continue": more}, "items": items})
}

// TestAutoApproval_ReadsManyAndLargeRequestsInPages checks that a kubelet cannot block the certificates of other
// kubelets by the number or the size of its requests.
func TestAutoApproval_ReadsManyAndLargeRequestsInPages(t *testing.T) {
	strange := func(n int) (out []any) {
		for i := range n {
			out = append(out, requestOf(t, fmt.Sprintf("a%d", i), "w1", "192.0.2.11", nil))
		}
		return out
	}
	good := page(t, "", requestOf(t, "z", "w1", "192.0.2.12", nil))
	for _, tc := range []struct {
		name, reason, cases string
		first               string
		want                []string
		left                string
	}{
		{
			"many", "the list is read to its end, and the error stays short",
			`"get --raw=/requests?continue=a%2Fb%3D&fieldSelector=spec.signerName%3Dkubernetes.io%2Fkubelet-serving&limit=50") cat good;;
			"get --raw=/requests?fieldSelector=spec.signerName%3Dkubernetes.io%2Fkubelet-serving&limit=50") cat first;;`,
			page(t, "a/b=", strange(50)...),
			[]string{`"z" of "system:node:w1"`},
			"30 more requests remain pending",
		},
		{
			"large", "a smaller page is requested",
			`*"&limit=1") cat good;;
			"get --raw=/requests?"*) head -c 17000000 /dev/zero;;`,
			"",
			[]string{`"z" of "system:node:w1"`},
			"",
		},
		{
			"one that is too large", "even a page of one request is too large",
			`"get --raw=/requests?"*) head -c 17000000 /dev/zero;;`,
			"", nil, "listing requests: it has more than",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newFakeKubectl(t, tc.cases, map[string]string{"first": tc.first, "good": good})
			approved, err := k.approve()
			if d := cmp.Diff(tc.want, approved); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			if (err != nil) != (tc.left != "") || err != nil && !strings.Contains(err.Error(), tc.left) {
				t.Errorf("%v, want %q in it: %s", err, tc.left, tc.reason)
			}
		})
	}
}

// TestAutoApproval_EscapesNameOfRequest checks that the name of a request cannot address another API path,
// and adds no line to the journal.
func TestAutoApproval_EscapesNameOfRequest(t *testing.T) {
	t.Parallel()
	name := "a/../../nodes?x#\napproved"
	k := newFakeKubectl(t, `"get --raw=/requests?"*) cat list;;`,
		map[string]string{"list": page(t, "", requestOf(t, name, "w1", "192.0.2.12", nil))})
	approved, err := k.approve()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{strconv.Quote(name) + ` of "system:node:w1"`}, approved); d != "" {
		t.Errorf("approved (-want +got):\n%s", d)
	}
	if where, _, _ := strings.Cut(k.sent(), " "); where != "--raw=/requests/a%2F..%2F..%2Fnodes%3Fx%23%0Aapproved/approval" {
		t.Errorf("it was sent to %s", where)
	}
}

// TestAutoApproval_IgnoresConflictIfAlreadyApprovedOrGone checks that a request that another control plane has approved, or
// that no longer exists, does not count as a failure.
func TestAutoApproval_IgnoresConflictIfAlreadyApprovedOrGone(t *testing.T) {
	approved := map[string]any{"conditions": []any{map[string]any{"type": "Approved"}}}
	for _, tc := range []struct {
		name, reason, again string
		fails               bool
	}{
		{"approved", "another control plane was faster", "cat approved", false},
		{"gone", "it needs no approval", `echo "Error from server (NotFound): it is not there" >&2; exit 1`, false},
		{"pending", "it has not been approved", "cat pending", true},
		{"not known", "the API server is gone", "echo refused >&2; exit 1", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newFakeKubectl(t, `"get --raw=/requests?"*) cat list;;
				"get --raw=/requests/csr-1") `+tc.again+`;;
				"put --raw=/requests/csr-1/approval") echo "Error from server (Conflict): it has changed" >&2; exit 1;;`,
				map[string]string{
					"list":     page(t, "", requestOf(t, "csr-1", "w1", "192.0.2.12", nil)),
					"approved": marshal(t, requestOf(t, "csr-1", "w1", "192.0.2.12", approved)),
					"pending":  marshal(t, requestOf(t, "csr-1", "w1", "192.0.2.12", nil)),
				})
			done, err := k.approve()
			if len(done) > 0 {
				t.Errorf("approved %v", done)
			}
			if (err != nil) != tc.fails || err != nil && !strings.Contains(err.Error(), "(Conflict)") {
				t.Errorf("%v: %s", err, tc.reason)
			}
		})
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAutoApproval_ApprovesOnlyValidKubeletRequests checks that a control plane approves the valid requests of the
// cluster's kubelets in the version that it read. It leaves the other requests pending.
func TestAutoApproval_ApprovesOnlyValidKubeletRequests(t *testing.T) {
	t.Parallel()
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
	k := newFakeKubectl(t, `"get --raw=/requests?"*) cat list;;`, map[string]string{"list": string(list)})
	approved, err := k.approve()
	if d := cmp.Diff([]string{`"csr-good" of "system:node:w1"`}, approved); d != "" {
		t.Errorf("approved (-want +got):\n%s", d)
	}
	for _, want := range []string{`"csr-stolen"`, "192.0.2.11 is not an address of node w1", `"csr-stranger"`, "not a node of the cluster"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	where, body, _ := strings.Cut(k.sent(), " ")
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
		t.Errorf("the approval does not name the version that was read: %+v", object.Metadata)
	}
	if c := object.Status.Conditions; len(c) != 1 || c[0].Type != "Approved" || c[0].Status != "True" || c[0].Reason == "" {
		t.Errorf("the conditions are %+v", c)
	}
}
