package sample

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/testutil/golden"
)

func TestWrite_IsValid(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		opts         Options
	}{
		{"empty", "without options it is an example to edit", Options{}},
		{
			"flags", "hosts are written in the order of the flags, the common user once",
			Options{Name: "edge", Kubernetes: "v1.36.4", File: "edge.yaml", Hosts: []spec.HostFlag{
				{User: "admin", Address: "10.0.0.11", Port: 22, Roles: []v1alpha1.Role{"control-plane"}},
				{User: "root", Address: "10.0.0.12", Port: 2222, Name: "on", Roles: []v1alpha1.Role{"worker"}},
				{User: "admin", Address: "w.example.com", InternalAddress: "10.0.0.13", Roles: []v1alpha1.Role{"worker"}},
			}},
		},
		{"local", "one machine without SSH", Options{Name: "here", Hosts: []spec.HostFlag{
			{Address: "localhost", Name: "here", Roles: []v1alpha1.Role{"control-plane", "worker"}},
		}}},
		{"etcd", "with hosts for etcd, that is its type", Options{Hosts: []spec.HostFlag{
			{Address: "10.0.0.11", Roles: []v1alpha1.Role{"control-plane"}},
			{Address: "10.0.0.21", Roles: []v1alpha1.Role{"etcd"}},
			{Address: "10.0.0.22", Roles: []v1alpha1.Role{"etcd"}},
			{Address: "10.0.0.23", Roles: []v1alpha1.Role{"worker", "etcd"}},
		}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := Write(tc.opts)
			if err != nil {
				t.Fatalf("%v: %s", err, tc.reason)
			}
			golden.Check(t, "testdata/sample/"+tc.name+".yaml", string(data))
			loaded, err := spec.Load("sample", data)
			if err != nil || len(loaded.Warnings) > 0 {
				t.Errorf("a sample loads without any diagnostic: %v", err)
			}
			settings := regexp.MustCompile(`(?m)^( *)#(\S)`).ReplaceAllString(string(data), "$1$2")
			settings = strings.ReplaceAll(settings, "\n#\n", "\n")
			again, err := spec.Load("settings", []byte(settings))
			if err != nil || len(again.Warnings) > 0 {
				t.Errorf("every setting in comments is a valid one: %v", err)
			}
		})
	}
}

func TestWrite_RefusesInvalidHosts(t *testing.T) {
	host := spec.HostFlag{Address: "10.0.0.1", Roles: []v1alpha1.Role{"control-plane"}}
	for name, opts := range map[string]Options{
		"name":              {Name: "A_b"},
		"duplicate address": {Hosts: []spec.HostFlag{host, host}},
		"no control plane":  {Hosts: []spec.HostFlag{{Address: "10.0.0.1", Roles: []v1alpha1.Role{"worker"}}}},
		"strange user":      {Hosts: []spec.HostFlag{{User: "a\": b\n", Address: "10.0.0.1", Roles: []v1alpha1.Role{"control-plane"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var list diag.List
			if _, err := Write(opts); !errors.As(err, &list) {
				t.Errorf("got %v, want a diag.List", err)
			}
		})
	}
}
