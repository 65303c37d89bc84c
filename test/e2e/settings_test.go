//go:build e2e

package e2e

import (
	"bytes"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Names that pods resolve: one that the cluster file has, one that only the upstream
// server knows, and one that only the server of its zone knows.
const (
	hostsName    = "portal.example.com"
	upstreamName = "upstream.example.org"
	zoneName     = "wiki.corp.example.org"
)

// How long certificates are to be good.
const validity, caValidity = 2400 * time.Hour, 48000 * time.Hour

// setUp asks for what a cluster file can and a sandbox's does not: the
// validity of certificates, names for hosts and pods, and hooks.
func (u *user) setUp(t *testing.T, file string) {
	t.Helper()
	for name, text := range map[string]string{
		"note.txt": "a note\n",
		"mark.sh":  "#!/bin/sh\nset -e\ncat note.txt >/var/tmp/own-hook\necho \"$SLIPWAY_HOST $SLIPWAY_PHASE\" >>/var/tmp/own-hook\n",
		"last.sh":  "#!/bin/sh\necho \"$SLIPWAY_HOST $SLIPWAY_PHASE\" >>/var/tmp/own-hook\n",
	} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	editSpec(t, file, func(spec map[string]any) {
		first := spec["hosts"].([]any)[0].(map[string]any)["address"].(string)
		certificates := childMap(childMap(spec, "kubernetes"), "certificates")
		certificates["validity"], certificates["caValidity"] = validity.String(), caValidity.String()
		spec["dns"] = map[string]any{
			"hosts":    map[string]any{first: []string{hostsName}},
			"upstream": []string{serveName(t, first, upstreamName)},
			"zones": []any{map[string]any{
				"names": []string{"corp.example.org"}, "servers": []string{serveName(t, first, zoneName)}, "cacheSeconds": 5,
			}},
		}
		// A machine cannot raise limits, so this one lowers a limit.
		childMap(spec, "system")["limits"] = map[string]any{"core": "0"}
		spec["hooks"] = []any{
			map[string]any{"name": "mark", "phase": "postInstall", "script": "mark.sh", "materials": []string{"note.txt"}},
			map[string]any{"name": "last", "phase": "preDelete", "roles": []string{"worker"}, "script": "last.sh"},
		}
	})
}

// isSetUp asserts that the cluster has what setUp asked for. It wants the
// smoke test's echo server.
func (u *user) isSetUp(t *testing.T, cluster string, machines []string) {
	for path, want := range map[string]time.Duration{
		"ca.crt": caValidity, "apiserver.crt": validity,
		"apiserver-kubelet-client.crt": validity,
	} {
		block, _ := pem.Decode([]byte(u.mustExec(t, machines[0], "cat", "/etc/kubernetes/pki/"+path)))
		if block == nil {
			t.Fatalf("%s is no certificate", path)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(c.NotAfter); left > want || left < want-time.Hour {
			t.Errorf("%s is good for another %s, want %s", path, left, want)
		}
	}
	pod := u.mustKubectl(t, cluster, "get", "pods", "-l", "app=echo", "-o", "jsonpath={.items[0].metadata.name}")
	for _, name := range []string{hostsName, upstreamName, zoneName} {
		u.requireAnswer(t, cluster, pod, "http://"+name+":30080/", "echo-")
	}
	for _, m := range machines {
		u.mustExec(t, m, "getent", "hosts", hostsName)
		if got := u.mustExec(t, m, "su", "-", "root", "-c", "ulimit -Hc"); strings.TrimSpace(got) != "0" {
			t.Errorf("a login on %s has the limit %q for core files, want 0", m, got)
		}
		u.hooksRan(t, m, "a note\n"+m+" postInstall\n")
	}
}

// hooksRan asserts what hooks have written on a machine.
func (u *user) hooksRan(t *testing.T, machine, want string) {
	t.Helper()
	if got := u.mustExec(t, machine, "cat", "/var/tmp/own-hook"); got != want {
		t.Errorf("the hooks on %s wrote %q, want %q", machine, got, want)
	}
}

// serveName is a DNS server on this host, in the network of a machine, that
// knows one name, which leads to that machine; it answers until the test ends.
func serveName(t *testing.T, machine, name string) (address string) {
	t.Helper()
	leads := netip.MustParseAddr(machine).As4()
	gateway := leads
	gateway[3] = 1
	conn, err := net.ListenPacket("udp", net.JoinHostPort(netip.AddrFrom4(gateway).String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		query := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return // closed
			}
			if answer := answerDNS(query[:n], name, leads); answer != nil {
				_, _ = conn.WriteTo(answer, from) // else it is asked again
			}
		}
	}()
	return conn.LocalAddr().String()
}

// answerDNS returns the response to a query of DNS (RFC 1035, 4.1): an address for the one
// name, no other record of it, and no other name. It returns nil for other data.
func answerDNS(query []byte, name string, leads [4]byte) []byte {
	const header = 12
	var question []byte
	for label := range strings.SplitSeq(name, ".") {
		question = append(append(question, byte(len(label))), label...)
	}
	question = append(question, 0)
	end := bytes.IndexByte(query[min(header, len(query)):], 0)
	if end < 0 || len(query) < header+end+5 {
		return nil
	}
	asked := query[header : header+end+1]
	kind := binary.BigEndian.Uint16(query[header+end+1:])
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[header:header+end+5]...)
	switch {
	case !bytes.EqualFold(asked, question):
		answer[3] |= 3 // no such name
	case kind == 1: // an IPv4 address
		answer[7] = 1
		answer = append(append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4), leads[:]...)
	}
	return answer
}
