package modules

import (
	_ "embed"
	"maps"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/release"
)

//go:embed templates/webserver.go.tmpl
var webserverMain string

//go:embed templates/shell.go.tmpl
var shellMain string

// ConformanceTests is the component that holds Kubernetes' own end-to-end tests
// ("e2e.test"), the program that runs them in parallel ("ginkgo") and "kubectl".
const ConformanceTests = "conformance"

// NewConformance returns a source of the conformance tests of a release and of the
// images that these tests run. No bundle contains them.
func NewConformance(o Options) *Source {
	return &Source{opts: o, recipes: conformanceUnits, images: conformanceImages()}
}

// conformanceUnits returns what the conformance tests of a release are made of.
func conformanceUnits(r release.Release) map[string]unit {
	// The tests compare the version that they were built with to the server's.
	kube := kubernetesUnit(r).Modules[0]
	kube.Files, kube.Programs = nil, nil
	kube.Instead = map[string]string{}
	maps.Copy(kube.Instead, r.Modules)
	maps.Copy(kube.Instead, testModules(r.Kubernetes))
	of := func(name string, fill func(*module)) unit {
		m := kube
		fill(&m)
		return unit{Name: name, Version: r.Kubernetes, Licence: apache, Modules: []module{m}}
	}
	tests := of(ConformanceTests, func(m *module) {
		m.Programs = map[string]string{"k8s.io/kubernetes/cmd/kubectl": "kubectl", "github.com/onsi/ginkgo/v2/ginkgo": "ginkgo"}
		m.Tests = map[string]string{"k8s.io/kubernetes/test/e2e": "e2e.test"}
	})
	tests.Questions = []question{
		{"e2e.test", []string{"e2e.test", "--version"}, []string{r.Kubernetes}},
		{"kubectl", []string{"kubectl", "version", "--client"}, []string{r.Kubernetes}},
		{"ginkgo", []string{"ginkgo", "version"}, []string{"Ginkgo Version 2."}},
	}
	const agnhostDir = "test/images/agnhost"
	agnhost := of("agnhost", func(m *module) {
		m.Programs = map[string]string{"k8s.io/kubernetes/" + agnhostDir: "agnhost"}
		m.Data = map[string]string{
			agnhostDir + "/porter/localhost.crt": "localhost.crt",
			agnhostDir + "/porter/localhost.key": "localhost.key",
		}
	})
	agnhost.Links = map[string]string{"agnhost-2": "agnhost"} // some tests tell the two names apart
	agnhost.Content = map[string]string{
		"uploads/.keep": "",
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n" +
			"user-defined-in-image:x:1000:1000::/:/bin/sh\n",
		"etc/group": "root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n",
	}
	agnhost.Questions = []question{{"agnhost", []string{"agnhost", "--help"}, []string{"netexec"}}}
	sample := of("sample-apiserver", func(m *module) {
		m.Programs = map[string]string{"k8s.io/sample-apiserver": "sample-apiserver"}
	})
	sample.Questions = []question{{"sample-apiserver", []string{"sample-apiserver", "--help"}, []string{"--etcd-servers"}}}
	const kittenDir = "test/images/kitten/html"
	kitten := of("kitten", func(m *module) {
		m.Data = map[string]string{kittenDir + "/kitten.jpg": "kitten.jpg", kittenDir + "/data.json": "data.json"}
	})
	// A test looks for the name of the system of the original image.
	kitten.Content = map[string]string{"etc/os-release": "# A stand-in for an image of Alpine Linux.\nNAME=\"Slipway test image\"\n"}
	nonewprivs := of("nonewprivs", func(m *module) {
		m.Programs = map[string]string{"k8s.io/kubernetes/test/images/nonewprivs": privilegeProgram}
	})
	nonewprivs.Setuid = []string{privilegeProgram}
	nonewprivs.Questions = []question{{privilegeProgram, []string{"nnp"}, []string{"Effective uid: "}}}
	webserver := ownProgram("webserver", "webserver", "1", webserverMain)
	webserver.Content = map[string]string{webserverDir + "/index.html": "<html><body>A stand-in for another web server.</body></html>\n"}
	webserver.Questions = []question{{"webserver", []string{"webserver"}, []string{"usage"}}}
	out := map[string]unit{}
	for _, u := range []unit{tests, agnhost, kitten, sample, nonewprivs, testToolsUnit(), busyboxUnit(), webserver, baseUnit()} {
		out[u.Name] = u
	}
	return out
}

// testModules returns modules that tests alone need and that cannot be had at the
// version of a release, with the version that stands in for each.
func testModules(version string) map[string]string {
	return map[string]map[string]string{
		"v1.35.6": {"k8s.io/sample-apiserver": "v0.35.4"},
	}[version]
}

// testToolsUnit returns the shell and the network tools that tests run in their images.
func testToolsUnit() unit {
	u := unit{
		Name: "testtools", Version: "1",
		Licence: "Apache-2.0 AND BSD-3-Clause AND curl AND GPL-2.0-only AND GPL-2.0-or-later AND GPL-3.0-or-later AND " +
			"LGPL-2.1-or-later AND MPL-2.0",
		Packages: []string{
			"bash", "bind9-dnsutils", "bind9-host", "busybox-static", "curl", "hostname", "iproute2",
			"libc-bin", "netcat-openbsd",
		},
		Pick: pickNamed,
		Take: []string{
			"usr/bin/bash", "usr/bin/busybox", "usr/bin/curl", "usr/bin/dig", "usr/bin/getent", "usr/bin/host",
			"usr/bin/hostname", "usr/bin/nc.openbsd", "usr/bin/nslookup", "usr/bin/ss",
		},
		// Debian's busybox, as a shell, runs its own nc and no other.
		Links: map[string]string{"usr/bin/nc": "nc.openbsd", "usr/bin/sh": "bash"},
	}
	for name := range strings.FieldsSeq(applets) {
		if _, ok := u.Links["usr/bin/"+name]; !ok && !slices.Contains(u.Take, "usr/bin/"+name) {
			u.Links["usr/bin/"+name] = "busybox"
		}
	}
	return u
}

// busyboxUnit returns the shell and the link for the nc of an image of busybox.
func busyboxUnit() unit {
	u := ownProgram("busybox", "usr/bin/sh", "2", shellMain)
	u.Licence += " AND GPL-2.0-only"
	u.Links = map[string]string{"usr/bin/nc": "busybox"}
	return u
}

// applets are programs that Debian's busybox contains.
const applets = `[ [[ awk base64 basename cat chgrp chmod chown clear cmp cp cut date dd df dirname dmesg du echo egrep env expr
	false fgrep find fold free grep groups gunzip gzip head id ifconfig ip kill killall ln ls md5sum mkdir mkfifo mknod mktemp
	more mount mv netstat nohup od ping ping6 printenv printf ps pwd readlink realpath rm rmdir route sed seq sh sha1sum
	sha256sum sleep sort stat stty sync sysctl tail tar tee telnet test time timeout top touch tr traceroute true tty umount uname
	uniq uptime vi watch wc wget which whoami xargs yes`

// privilegeProgram shows the user as which it runs, and runs as root unless a container forbids it.
const privilegeProgram = "usr/local/bin/nnp"

// webserverDir is the directory of nginx for its files; webserver replaces nginx.
const webserverDir = "usr/share/nginx/html"

// conformanceImages returns the images that conformance tests run, except the images that
// a bundle contains. Each name is the last part of the name that tests use.
func conformanceImages() []image {
	shell := []string{"base", "testtools"}
	return []image{
		// Its dig and its resolver use glibc; the original image uses musl.
		{name: "agnhost", layers: []string{"base", "testtools", "agnhost"}, entrypoint: []string{"/agnhost"}, cmd: []string{"pause"}},
		{
			name: "kitten", layers: []string{"base", "testtools", "agnhost", "kitten"},
			entrypoint: []string{"/agnhost"}, cmd: []string{"test-webserver"},
		},
		{name: "sample-apiserver", layers: []string{"base", "sample-apiserver"}, entrypoint: []string{"/sample-apiserver"}},
		{name: "busybox", layers: []string{"base", "testtools", "busybox"}, cmd: []string{"sh"}},
		{name: "nonewprivs", layers: []string{"base", "nonewprivs"}, cmd: []string{"/" + privilegeProgram}},
		{name: "glibc-dns-testing", layers: shell, cmd: []string{"bash"}},
		{name: "jessie-dnsutils", layers: shell, cmd: []string{"bash"}}, // its name until v1.35
		// A stand-in: tests want some web server with a shell.
		{name: "nginx", layers: []string{"base", "testtools", "webserver"}, cmd: []string{"/webserver", "/" + webserverDir}},
	}
}
