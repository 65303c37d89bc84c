//go:build linux

package health

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/pki"
)

// trustsCAs returns why the client CAs of a server differ from the CAs in files, or nil.
// The server sends the names of its client CAs before it authenticates the client;
// nothing else is sent or trusted.
func trustsCAs(ctx context.Context, h *host.Host, address string, files []string) error {
	var want []string
	seen := map[string]bool{}
	for _, file := range files {
		text, err := h.ReadFile(file)
		if err != nil {
			return err
		}
		list, err := pki.ParseAuthorities(text)
		if err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		for _, a := range list {
			if seen[a.ID] {
				continue
			}
			seen[a.ID] = true
			cert, err := pki.ParseCertificate(a.Text)
			if err != nil {
				return err
			}
			want = append(want, string(cert.RawSubject))
		}
	}
	have, err := requestedCAs(ctx, address)
	if err != nil {
		return err
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		return fmt.Errorf("%s trusts %d client CAs so far, and must trust %d", address, len(have), len(want))
	}
	return nil
}

// requestedCAs returns the names of the client CAs of a server.
func requestedCAs(ctx context.Context, address string) (names []string, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // a question to whoever is there: nothing is sent, nothing is believed
		GetClientCertificate: func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			names = nil
			for _, name := range info.AcceptableCAs {
				names = append(names, string(name))
			}
			return &tls.Certificate{}, nil
		},
	})
	return names, client.HandshakeContext(ctx)
}
