package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bundle/pack"
	"slipway.dev/slipway/internal/release"
)

// IDWrongVersion is a program that reports another version than expected.
const IDWrongVersion = "program-version-differs"

// A question is put to a program once it is built: its version, for one.
type question struct {
	member string   // of the tar
	args   []string // the first is the name it is called by
	want   []string // all must be in what it prints
}

// askTimeout limits the time for the response of a program.
const askTimeout = 30 * time.Second

// askPrograms runs the programs with their questions, if this machine can run them. It
// ignores the exit status, because a CNI plugin without input fails.
func (j *job) askPrograms(ctx context.Context, members []pack.Member) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != j.arch {
		return nil
	}
	for _, q := range j.unit.Questions {
		i := 0
		for ; i < len(members) && members[i].Name != q.member; i++ {
		}
		if i == len(members) {
			return fmt.Errorf("%s is not one of the programs of %s", q.member, j.label())
		}
		if err := j.askOne(ctx, members[i].Path, q); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) askOne(ctx context.Context, path string, q question) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var out, talk bytes.Buffer
	err := runCommand(ctx, command{
		path: path, argv: q.args, dir: j.scratch, as: j.tool.as, stdout: &out,
		env:  []string{"PATH=" + os.Getenv("PATH"), "HOME=" + j.scratch},
		line: func(l string) { talk.WriteString(l + "\n") },
	})
	var failed *runError
	if err != nil && !errors.As(err, &failed) {
		return fmt.Errorf("running %s to get its version: %w", q.member, err)
	}
	answer := out.String() + talk.String()
	for _, w := range q.want {
		if !strings.Contains(answer, w) {
			return newProblem(IDWrongVersion, "report this error and the line above as a bug; the compiled program was discarded",
				"%s printed %q for %q (%v), expected %q in it", filepath.Base(q.member), strings.TrimSpace(answer), strings.Join(q.args, " "), err, w)
		}
	}
	return nil
}

// kubeadmImages returns the images of a release that kubeadm lists. The same registry
// also has other images.
func kubeadmImages() []string {
	return []string{"coredns", "etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "pause"}
}

// withQuestions adds to each unit what its programs are asked.
func withQuestions(r release.Release, all map[string]unit) map[string]unit {
	add := func(name, member, want string, args ...string) {
		u := all[name]
		u.Questions = append(u.Questions, question{member, args, []string{want}})
		all[name] = u
	}
	for _, name := range kubernetesPrograms() {
		switch name {
		case "kubectl":
			add("kubernetes", bin+multicall, r.Kubernetes, name, "version", "--client")
		case "kubeadm":
			add("kubernetes", bin+multicall, r.Kubernetes, name, "version", "--output=short")
		default:
			add("kubernetes", bin+multicall, "Kubernetes "+r.Kubernetes, name, "--version")
		}
	}
	refs := r.ImageRefs()
	for _, name := range kubeadmImages() {
		add("kubernetes", bin+multicall, refs[name], "kubeadm", "config", "images", "list", "--kubernetes-version", r.Kubernetes)
	}
	add("containerd", bin+"containerd", "v"+r.Containerd, "containerd", "--version")
	add("containerd", bin+"ctr", "v"+r.Containerd, "ctr", "--version")
	add("containerd", bin+"containerd-shim-runc-v2", "v"+r.Containerd, "containerd-shim-runc-v2", "-v")
	add("containerd", bin+"runc", "runc version "+r.Runc, "runc", "--version")
	add("containerd", bin+"runc", "libseccomp", "runc", "--version")
	add("docker", bin+"dockerd", "Docker version "+r.Docker.Engine, "dockerd", "--version")
	add("cri-dockerd", bin+"cri-dockerd", "cri-dockerd "+r.Docker.CRIDockerd+" ", "cri-dockerd", "--version")
	add("etcd", bin+"etcd", "etcd Version: "+r.Etcd, "etcd", "--version")
	add("etcd", bin+"etcdctl", "etcdctl version: "+r.Etcd, "etcdctl", "version")
	add("etcd", bin+"etcdutl", "etcdutl version: "+r.Etcd, "etcdutl", "version")
	add("coredns", "coredns", "CoreDNS-"+r.CoreDNS, "coredns", "-version")
	add("crictl", bin+"crictl", "crictl version v"+r.CRITools, "crictl", "--version")
	add("flannel", "opt/bin/flanneld", "v"+r.Flannel, "flanneld", "--version")
	for _, plugin := range []string{"bridge", "loopback", "ptp", "host-local", "portmap", "bandwidth", "firewall"} {
		add("cni-plugins", cniBin+plugin, "plugin v"+r.CNIPlugins, plugin)
	}
	add("cni-plugins", cniBin+"flannel", "plugin v"+r.FlannelCNI, "flannel")
	add("pause", "pause", r.Pause, "pause", "-v")
	add("echo", "echo", r.Echo, "echo", "version")
	add("probe", "usr/bin/probe", "probe 1", "probe", "version")
	add("metrics-server", "metrics-server", "v"+r.MetricsServer, "metrics-server", "--version")
	add("local-path", "usr/bin/local-path-provisioner", "v"+r.LocalPath, "local-path-provisioner", "--version")
	add("kube-state-metrics", "kube-state-metrics", "version v"+r.KubeStateMetrics+" ", "kube-state-metrics", "version")
	add("registry", bin+"registry", "v"+r.Registry, "registry", "--version")
	add("apiserver-updater", "apiserver-updater", "apiserver-updater "+r.Updater, "apiserver-updater", "version")
	return all
}
