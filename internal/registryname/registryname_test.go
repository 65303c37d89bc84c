package registryname

import "testing"

func TestCanonical_ReturnsOneFormOfEachRegistry(t *testing.T) {
	for _, tc := range []struct{ name, want, reason string }{
		{"docker.io", "docker.io", "images have this name"},
		{"Docker.io", "docker.io", "hosts have no case"},
		{"docker.io:443", "docker.io", "443 is the default port"},
		{"docker.io.", "docker.io", "a full DNS name"},
		{"index.docker.io", "docker.io", "the first API"},
		{"INDEX.docker.io:443", "docker.io", "case and port"},
		{"registry-1.docker.io", "docker.io", "the second API"},
		{"registry-1.docker.io:443", "docker.io", "with its port"},
		{"hub.docker.com", "docker.io", "the web page"},
		{"docker.io:5000", "docker.io:5000", "another server on this host"},
		{"docker.example.com", "docker.example.com", "another host"},
		{"R.example.com:5000", "r.example.com:5000", "hosts have no case"},
		{"r.example.com:443", "r.example.com:443", "its images have another name"},
		{"[FD00:0::2]:5000", "[fd00::2]:5000", "the form of RFC 5952"},
		{"fd00:0::2", "fd00::2", "an address without a port"},
		{"::ffff:192.0.2.1", "192.0.2.1", "IPv4 as IPv6"},
		{"", "", "no name"},
	} {
		if got := Canonical(tc.name); got != tc.want {
			t.Errorf("%q (%s): %q, want %q", tc.name, tc.reason, got, tc.want)
		}
	}
	if got := InImages("Index.docker.io"); got != DockerHub {
		t.Errorf("images of Docker Hub have the registry %s", got)
	}
	if got := InImages("R.example.com"); got != "R.example.com" {
		t.Errorf("the name of another registry was changed to %s", got)
	}
	if !Equal("Docker.io:443", "index.docker.io") || Equal("quay.io", "docker.io") {
		t.Error("registries are compared as text")
	}
	if got := Host("Registry-1.docker.io"); got != "registry-1.docker.io" {
		t.Errorf("the host of a mirror is %s", got)
	}
}
