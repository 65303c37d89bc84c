package sandbox

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"text/template"

	"go.yaml.in/yaml/v3"
	yamlk8s "sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
)

//go:embed templates/cluster.yaml.tmpl
var clusterTemplate embed.FS

// A clusterFile is a parsed cluster file.
type clusterFile struct {
	Name       string
	Kubernetes string
	KeyFile    string
	CgroupV1   bool
	Hosts      []clusterHost
}

type clusterHost struct {
	Name, Address, Role, HostKey string
}

func (c clusterFile) renderYAML() ([]byte, error) {
	t, err := template.ParseFS(clusterTemplate, "templates/cluster.yaml.tmpl")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, c); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// readHosts reads the hosts of a cluster file.
func readHosts(path string) ([]v1alpha1.Host, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, refuseWith(IDBadFile, err.Error(), "name a cluster file")
	}
	var c v1alpha1.Cluster
	if err := yamlk8s.Unmarshal(b, &c); err != nil {
		return nil, refuseWith(IDBadFile, path+": "+err.Error(), "run 'slipway create config' to write a cluster file")
	}
	if len(c.Spec.Hosts) == 0 {
		return nil, refuseWith(IDBadFile, path+" has no hosts under spec.hosts", "run 'slipway create config' to write a cluster file")
	}
	seen := map[string]bool{}
	for _, h := range c.Spec.Hosts {
		if !nameRE.MatchString(h.Name) || seen[h.Name] {
			return nil, refuseWith(IDBadFile, fmt.Sprintf("%s: a machine cannot be named %q", path, h.Name),
				"give each host a unique name: up to 40 lower-case letters, digits and hyphens, with a letter first")
		}
		seen[h.Name] = true
	}
	return c.Spec.Hosts, nil
}

// wantedRange returns the /24 with the addresses of all hosts, if a sandbox of pool can
// have exactly these addresses.
func wantedRange(pool netip.Prefix, hosts []v1alpha1.Host) (netip.Prefix, bool) {
	var want netip.Prefix
	seen := map[netip.Addr]bool{}
	for _, h := range hosts {
		a, err := netip.ParseAddr(h.Address)
		if err != nil || !pool.Contains(a) || seen[a] {
			return netip.Prefix{}, false
		}
		seen[a] = true
		p := netip.PrefixFrom(a, rangeBits).Masked()
		if last := a.As4()[3]; last < 2 || last > maxMachines+1 || (want.IsValid() && want != p) {
			return netip.Prefix{}, false
		}
		want = p
	}
	return want, want.IsValid()
}

// rewriteHosts writes the addresses and keys of machines to the hosts of a cluster file,
// and gives the cluster another name than the real one. All other text, including
// comments, is kept.
func rewriteHosts(text []byte, c clusterFile) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return nil, errors.New("an empty file")
	}
	spec := childNode(doc.Content[0], "spec")
	hosts := childNode(spec, "hosts")
	if hosts == nil || len(hosts.Content) != len(c.Hosts) {
		return nil, errors.New("spec.hosts has changed in the meantime")
	}
	for i, h := range c.Hosts {
		node := hosts.Content[i]
		dropKey(node, "internalAddress")
		setKey(node, "address", scalarNode(h.Address))
		setKey(node, "ssh", mappingNode("user", "root", "port", "22", "privateKeyFile", c.KeyFile, "hostKey", h.HostKey))
	}
	setIn(doc.Content[0], scalarNode(c.Name), "metadata", "name")
	// The login of the real hosts does not apply.
	dropKey(spec, "ssh")
	if c.Kubernetes != "" {
		setIn(spec, scalarNode(c.Kubernetes), "kubernetes", "version")
	}
	if c.CgroupV1 {
		setIn(spec, scalarNode("false"), "kubernetes", "kubelet", "config", "failCgroupV1")
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(&doc), e.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func childNode(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func dropKey(n *yaml.Node, key string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = append(n.Content[:i], n.Content[i+2:]...)
			return
		}
	}
}

func setKey(n *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content[i+1] = value
			return
		}
	}
	n.Content = append(n.Content, scalarNode(key), value)
}

func setIn(n *yaml.Node, value *yaml.Node, path ...string) {
	for _, key := range path[:len(path)-1] {
		next := childNode(n, key)
		if next == nil || next.Kind != yaml.MappingNode {
			next = &yaml.Node{Kind: yaml.MappingNode}
			setKey(n, key, next)
		}
		n = next
	}
	setKey(n, path[len(path)-1], value)
}

func scalarNode(v string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: v} }

func mappingNode(pairs ...string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, v := range pairs {
		n.Content = append(n.Content, scalarNode(v))
	}
	return n
}
