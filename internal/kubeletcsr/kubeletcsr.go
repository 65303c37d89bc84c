// Package kubeletcsr decides which requests for kubelet serving certificates can be
// approved. It compares a request with the nodes of the cluster that Slipway knows. The
// package has no side effects, and the node helper links it.
package kubeletcsr

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net"
	"slices"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

const (
	// Signer is the signer in Kubernetes that signs serving certificates of kubelets.
	Signer = "kubernetes.io/kubelet-serving"

	// PageSize limits how many requests are listed at a time, because kubelets can create
	// many.
	PageSize = 50

	userPrefix = "system:node:"
	group      = "system:nodes"
)

// A Request holds the fields of a CertificateSigningRequest that are compared, in
// their JSON form in the API.
type Request struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Request    []byte   `json:"request"`
		SignerName string   `json:"signerName"`
		Username   string   `json:"username"`
		Groups     []string `json:"groups"`
		Usages     []string `json:"usages"`
	} `json:"spec"`
	Status struct {
		Certificate []byte `json:"certificate"`
		Conditions  []struct {
			Type string `json:"type"`
		} `json:"conditions"`
	} `json:"status"`
}

// IsPending reports whether the request is neither approved nor denied.
func (r Request) IsPending() bool {
	return r.Spec.SignerName == Signer && len(r.Status.Conditions) == 0 && len(r.Status.Certificate) == 0
}

// ApprovedCondition is the condition that approves a request.
func ApprovedCondition() map[string]any {
	return map[string]any{
		"type": "Approved", "status": "True", "reason": "SlipwayApproved",
		"message": "The names and addresses match the node in Slipway's cluster file.",
	}
}

// IsFromNode reports whether the kubelet of a node has made the request, according to the
// API server.
func (r Request) IsFromNode(node string) bool { return r.Spec.Username == userPrefix+node }

// CheckRequest returns why a request must not be approved, or nil. It can be approved if the
// kubelet of one of the nodes requests a serving certificate with its own name and
// addresses, and nothing else.
func CheckRequest(r Request, nodes []op.KubeletIdentity) error {
	if r.Spec.SignerName != Signer {
		return fmt.Errorf("the signer is %q", r.Spec.SignerName)
	}
	at := slices.IndexFunc(nodes, func(n op.KubeletIdentity) bool { return r.IsFromNode(n.Name) })
	if at < 0 {
		return fmt.Errorf("%q is not a node of the cluster", r.Spec.Username)
	}
	if !slices.Contains(r.Spec.Groups, group) {
		return errors.New("the requester is not in group " + group)
	}
	if err := checkUsages(r.Spec.Usages); err != nil {
		return err
	}
	c, err := pki.ParseRequest(r.Spec.Request)
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	return compareCertificate(nodes[at], c)
}

// compareCertificate returns why the requested certificate does not match a node, or nil.
func compareCertificate(n op.KubeletIdentity, c *x509.CertificateRequest) error {
	if s := c.Subject; s.CommonName != userPrefix+n.Name || !slices.Equal(s.Organization, []string{group}) || len(s.Names) != 2 {
		return fmt.Errorf("the subject is %q", s.String())
	}
	if len(c.EmailAddresses) > 0 || len(c.URIs) > 0 {
		return errors.New("the request has email addresses or URIs")
	}
	if len(c.IPAddresses) == 0 {
		return errors.New("the request has no address")
	}
	for _, name := range c.DNSNames {
		if name != n.Name {
			return fmt.Errorf("%q is not a name of node %s", name, n.Name)
		}
	}
	for _, ip := range c.IPAddresses {
		if !slices.ContainsFunc(n.Addresses, func(a string) bool { return ip.Equal(net.ParseIP(a)) }) {
			return fmt.Errorf("%s is not an address of node %s", ip, n.Name)
		}
	}
	names := 0
	for _, e := range c.Extensions {
		if !e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) { // subject alternative names
			return fmt.Errorf("the request has the extension %s", e.Id)
		}
		names++
	}
	if names > 1 {
		return errors.New("the request has alternative names twice")
	}
	return nil
}

// checkUsages accepts the usages of a serving certificate.
func checkUsages(list []string) error {
	required := map[string]bool{"digital signature": false, "server auth": false}
	for _, u := range list {
		if _, ok := required[u]; ok {
			required[u] = true
		} else if u != "key encipherment" {
			return fmt.Errorf("usage %q is not allowed for a kubelet serving certificate", u)
		}
	}
	for u, there := range required {
		if !there {
			return fmt.Errorf("the request does not have the usage %q", u)
		}
	}
	return nil
}
