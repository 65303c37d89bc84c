package spec

import (
	"bytes"
	_ "embed"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

// A HostFlag is a host from the command line.
type HostFlag struct {
	User    string // "" means the default
	Address string
	Port    int // 0 means the default
	// InternalAddress cannot be written in a flag; other programs set it.
	InternalAddress string
	Name            string // "" is generated from the role and a number
	Roles           []v1alpha1.Role
}

// SampleOptions configures a sample.
type SampleOptions struct {
	Name       string // default: "demo"
	Kubernetes string // "" leaves the default to the program that reads the file
	// Hosts are written in order; without any, the sample has three examples.
	Hosts []HostFlag
	// File is the name of the file, for its comments; default "cluster.yaml".
	File string
}

//go:embed templates/cluster.yaml.tmpl
var sampleText string

// WriteSample writes a complete cluster file with comments. The error is a diag.List of
// problems with the options, as reported by Load for the file, so that Load accepts every
// sample without a diagnostic.
func WriteSample(opts SampleOptions) ([]byte, error) {
	setDefault(&opts.Name, "demo")
	setDefault(&opts.File, "cluster.yaml")
	hosts := slices.Clone(opts.Hosts)
	if len(hosts) == 0 {
		hosts = []HostFlag{
			{Address: "10.0.0.11", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}},
			{Address: "10.0.0.12", Roles: []v1alpha1.Role{v1alpha1.RoleWorker}},
			{Address: "10.0.0.13", Roles: []v1alpha1.Role{v1alpha1.RoleWorker}},
		}
	}
	user := commonUser(hosts)
	nameHosts(hosts)
	t, err := template.New("cluster.yaml").Funcs(template.FuncMap{"quote": quoteYAML}).Parse(sampleText)
	if err != nil {
		return nil, fmt.Errorf("reading the template of the sample: %w", err)
	}
	var out bytes.Buffer
	err = t.Execute(&out, struct {
		SampleOptions
		User        string
		Hosts       []HostFlag
		ManagedEtcd bool
	}{opts, user, hosts, slices.ContainsFunc(hosts, func(h HostFlag) bool { return slices.Contains(h.Roles, v1alpha1.RoleEtcd) })})
	if err != nil {
		return nil, fmt.Errorf("writing the sample: %w", err)
	}
	if _, err := Load("", out.Bytes()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// commonUser returns the user of the first host; hosts with the same user do not repeat
// it.
func commonUser(hosts []HostFlag) string {
	for i := range hosts {
		setDefault(&hosts[i].User, DefaultSSHUser)
	}
	user := hosts[0].User
	for i := range hosts {
		if hosts[i].User == user {
			hosts[i].User = ""
		}
		if hosts[i].Port == DefaultSSHPort {
			hosts[i].Port = 0
		}
	}
	return user
}

// nameHosts numbers hosts without a name: cp-1, etcd-1, worker-1, worker-2.
func nameHosts(hosts []HostFlag) {
	taken := map[string]bool{}
	for _, h := range hosts {
		taken[h.Name] = true
	}
	for i := range hosts {
		h := &hosts[i]
		prefix := "worker-"
		switch {
		case slices.Contains(h.Roles, v1alpha1.RoleControlPlane):
			prefix = "cp-"
		case slices.Contains(h.Roles, v1alpha1.RoleEtcd) && len(h.Roles) == 1:
			prefix = "etcd-"
		case slices.Contains(h.Roles, v1alpha1.RoleRegistry) && len(h.Roles) == 1:
			prefix = "registry-"
		}
		for n := 1; h.Name == ""; n++ {
			if name := prefix + strconv.Itoa(n); !taken[name] {
				h.Name, taken[name] = name, true
			}
		}
	}
}

var plainText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// quoteYAML quotes text so that YAML reads it as text.
func quoteYAML(text string) string {
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: text}
	// Older YAML reads these as true and false.
	switched := slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, strings.ToLower(text))
	if plainText.MatchString(text) && plain.ShortTag() == "!!str" && !switched {
		return text
	}
	return strconv.Quote(text)
}

// hostFlagForm is used in hints.
const hostFlagForm = "write it as user@address:port=role,role,name=NAME; user, port and name may be left out"

// ParseHostFlag reads [user@]address[:port]=role[,role][,name=NAME]; an IPv6
// address with a port is in brackets. The error is a diag.List.
func ParseHostFlag(flag string) (HostFlag, error) {
	var h HostFlag
	where, what, ok := strings.Cut(flag, "=")
	if !ok || what == "" {
		return h, hostFlagError(idMissingRole, flag, "has no role", "add =control-plane, =worker or =etcd to it")
	}
	if user, rest, ok := strings.Cut(where, "@"); ok {
		if user == "" {
			return h, hostFlagError(idInvalidHostFlag, flag, "has no user before the @", hostFlagForm)
		}
		h.User, where = user, rest
	}
	var problem string
	if h.Address, h.Port, problem = splitAddress(where); problem != "" {
		return h, hostFlagError(idInvalidHostFlag, flag, problem, hostFlagForm)
	}
	for _, item := range strings.Split(what, ",") {
		if err := h.setItem(flag, item); err != nil {
			return h, err
		}
	}
	if len(h.Roles) == 0 {
		return h, hostFlagError(idMissingRole, flag, "has no role", "add control-plane, worker or etcd to it")
	}
	return h, nil
}

// setItem sets one of the words after the "=".
func (h *HostFlag) setItem(flag, item string) error {
	roles := []string{string(v1alpha1.RoleControlPlane), string(v1alpha1.RoleWorker), string(v1alpha1.RoleEtcd), string(v1alpha1.RoleRegistry)}
	key, value, pair := strings.Cut(item, "=")
	switch {
	case pair && key == "name" && value != "" && h.Name == "":
		h.Name = value
	case pair:
		return hostFlagError(idInvalidHostFlag, flag, "has an unknown part "+strconv.Quote(item), hostFlagForm)
	case !slices.Contains(roles, item):
		return hostFlagError(idUnknownRole, flag, "has an unknown role "+strconv.Quote(item), SuggestWord(item, roles))
	case slices.Contains(h.Roles, v1alpha1.Role(item)):
		return hostFlagError(idInvalidHostFlag, flag, "names the role "+item+" twice", "keep one of them")
	default:
		h.Roles = append(h.Roles, v1alpha1.Role(item))
	}
	return nil
}

func hostFlagError(id, flag, problem, hint string) error {
	return diag.List{{ID: id, Severity: diag.Error, Path: "--host", Message: strconv.Quote(flag) + " " + problem, Hint: hint}}
}

// splitAddress splits address, address:port, [v6] and [v6]:port.
func splitAddress(text string) (address string, port int, problem string) {
	if text == "" {
		return "", 0, "has no address"
	}
	address = text
	if _, err := netip.ParseAddr(text); err != nil {
		i := strings.LastIndex(text, ":")
		if i >= 0 && !strings.HasSuffix(text, "]") {
			n, err := strconv.Atoi(text[i+1:])
			if err != nil || n < 1 || n > 65535 {
				return "", 0, "has an invalid port " + strconv.Quote(text[i+1:])
			}
			address, port = text[:i], n
		}
		if inner, ok := strings.CutPrefix(address, "["); ok {
			address = strings.TrimSuffix(inner, "]")
		}
	}
	if _, ok := hostAddress(address); !ok {
		return "", 0, "has an address " + strconv.Quote(address) + ", which is neither an IP address nor a host name"
	}
	return CanonicalIP(address), port, ""
}
