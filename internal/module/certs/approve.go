package certs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

const (
	stepApprove = "certs.approve"
	approveName = "slipway-approve"
	// requestsPath is the API path of the requests for serving certificates of kubelets.
	requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
)

var approving = module.TimerJob{
	Name: approveName, Title: "Approve serving certificates of kubelets",
	Program: "/usr/local/lib/slipway/slipway-approve", JobFile: "/etc/slipway/approve.json",
}

// How often a control plane checks for requests. A kubelet renews its certificate when a
// tenth of its lifetime or more is left.
const (
	approveFirst  = 2 * time.Minute
	approveEvery  = 5 * time.Minute
	approveSpread = 2 * time.Minute
)

// approvalTask is the task that makes every control plane approve the requests of kubelets
// that renew their serving certificates. Control planes do not coordinate: a request is
// approved once.
func approvalTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepApprove, Title: "enable kubelet certificate approval", On: engine.HasRole(v1alpha1.RoleControlPlane),
		Ops: func(s *engine.Scope) (op.List, error) {
			var list op.List
			if spec.SignsKubelets(env.Cluster) {
				job, err := json.Marshal(autoApproval(env, s.Hosts()))
				if err != nil {
					return nil, fmt.Errorf("encoding the list of kubelets: %w", err)
				}
				// One line for each kubelet makes diffs readable.
				job = bytes.ReplaceAll(job, []byte(`{"name":`), []byte("\n"+`{"name":`))
				if list, err = approving.InstallOps(files, job,
					module.TimerSchedule{First: approveFirst, Every: approveEvery, Spread: approveSpread}); err != nil {
					return nil, err
				}
			}
			return append(list, op.RevertStep{Step: stepApprove}), nil
		},
	}
}

// autoApproval returns the job of a control plane: it uses its own API server, and the
// kubeconfig that other checks on control planes use.
func autoApproval(env module.Env, hosts []*engine.Host) op.AutoApproval {
	own := net.JoinHostPort("127.0.0.1", strconv.Itoa(env.Cluster.Spec.ControlPlaneEndpoint.Port))
	ask := func(args ...string) []string {
		return append([]string{kubectl, "--kubeconfig=" + adminConf, "--server=https://" + own, "--request-timeout=30s"}, args...)
	}
	a := op.AutoApproval{
		Get: ask("get", "--raw="+requestsPath), Put: ask("replace", "-f", "-", "--raw="+requestsPath),
	}
	for _, h := range env.Cluster.Spec.Hosts {
		if !hostroles.RunsKubelet(h.Roles) {
			continue
		}
		host := &engine.Host{Host: h}
		if at := slices.IndexFunc(hosts, func(o *engine.Host) bool { return o.Name == h.Name }); at >= 0 {
			host.Facts = hosts[at].Facts
		}
		a.Kubelets = append(a.Kubelets, env.KubeletIdentity(host))
	}
	return a
}
