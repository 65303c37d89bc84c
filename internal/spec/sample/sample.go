// Package sample writes complete cluster files with comments.
package sample

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec"
)

// Options configures a sample.
type Options struct {
	Name       string // default: "demo"
	Kubernetes string // "" leaves the default to the program that reads the file
	// Hosts are written in order; without any, the sample has three examples.
	Hosts []spec.HostFlag
	// File is the name of the file, for its comments; default "cluster.yaml".
	File string
}

//go:embed templates/cluster.yaml.tmpl
var sampleText string

// Write writes a complete cluster file with comments. The error is a diag.List of
// problems with the options, as reported by Load for the file, so that Load accepts every
// sample without a diagnostic.
func Write(opts Options) ([]byte, error) {
	opts.Name = cmp.Or(opts.Name, "demo")
	opts.File = cmp.Or(opts.File, "cluster.yaml")
	hosts := slices.Clone(opts.Hosts)
	if len(hosts) == 0 {
		hosts = []spec.HostFlag{
			{Address: "10.0.0.11", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}},
			{Address: "10.0.0.12", Roles: []v1alpha1.Role{v1alpha1.RoleWorker}},
			{Address: "10.0.0.13", Roles: []v1alpha1.Role{v1alpha1.RoleWorker}},
		}
	}
	user := commonUser(hosts)
	spec.NameHosts(hosts)
	t, err := template.New("cluster.yaml").Funcs(template.FuncMap{"quote": quoteYAML}).Parse(sampleText)
	if err != nil {
		return nil, fmt.Errorf("reading the template of the sample: %w", err)
	}
	var out bytes.Buffer
	err = t.Execute(&out, struct {
		Options
		User        string
		Hosts       []spec.HostFlag
		ManagedEtcd bool
	}{opts, user, hosts, slices.ContainsFunc(hosts, func(h spec.HostFlag) bool { return slices.Contains(h.Roles, v1alpha1.RoleEtcd) })})
	if err != nil {
		return nil, fmt.Errorf("writing the sample: %w", err)
	}
	if _, err := spec.Load("", out.Bytes()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// commonUser returns the user of the first host; hosts with the same user do not repeat
// it.
func commonUser(hosts []spec.HostFlag) string {
	for i := range hosts {
		hosts[i].User = cmp.Or(hosts[i].User, spec.DefaultSSHUser)
	}
	user := hosts[0].User
	for i := range hosts {
		if hosts[i].User == user {
			hosts[i].User = ""
		}
		if hosts[i].Port == spec.DefaultSSHPort {
			hosts[i].Port = 0
		}
	}
	return user
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
