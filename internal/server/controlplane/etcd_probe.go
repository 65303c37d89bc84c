package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"slipway.dev/slipway/internal/diag"
)

// probeTime limits a connection that only finds out why an etcd does not respond.
const probeTime = 3 * time.Second

// explainSilence returns the refusal for an etcd that does not respond. etcd's client reports
// only that time is over; a connection to each server has the cause.
func (e *etcd) explainSilence(ctx context.Context, err error) error {
	causes := []string{err.Error()}
	for _, server := range e.servers {
		if !e.isExternal() {
			break
		}
		if err := e.probe(ctx, server); err != nil {
			causes = append(causes, err.Error())
		}
	}
	return diag.Refuse(idEtcdSilent,
		fmt.Sprintf("etcd at %s does not respond within %s: %s", strings.Join(e.servers, ", "), externalTime, strings.Join(causes, "; ")),
		"check the addresses, the certificates and the health of that etcd")
}

// probe connects to a server, and returns why it cannot be used.
func (e *etcd) probe(ctx context.Context, server string) error {
	at, err := url.Parse(server)
	if err != nil || at.Host == "" {
		return fmt.Errorf("%q is not a URL, such as https://10.0.0.1:2379", server)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	if at.Scheme != "https" {
		return nil
	}
	config, err := e.tls.ClientConfig()
	if err != nil {
		return err
	}
	if config.ServerName == "" {
		config.ServerName = at.Hostname()
	}
	config.NextProtos = []string{"h2"}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS connection to %s: %w", at.Host, err)
	}
	// The server refuses a client certificate only after the handshake.
	if err := conn.SetReadDeadline(time.Now().Add(probeTime)); err != nil {
		return err
	}
	var timeout net.Error
	if _, err := secure.Read(make([]byte, 1)); err != nil && (!errors.As(err, &timeout) || !timeout.Timeout()) {
		return fmt.Errorf("TLS connection to %s: %w", at.Host, err)
	}
	return nil
}
