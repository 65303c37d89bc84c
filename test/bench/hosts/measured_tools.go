//go:build linux

package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// nothingToDo is Slipway's output for an unchanged run.
const nothingToDo = "nothing to do"

var (
	//go:embed playbook.yml
	playbook string
	//go:embed merged.yml
	merged string
)

// programFor is how to prepare hosts with a tool whose state is below home, or in the server.
func (l *lab) programFor(tool string, hosts []host, home string, s *server) (argv, env []string, err error) {
	env = []string{"HOME=" + home, "LC_ALL=C.UTF-8"}
	files := map[string]string{}
	switch tool {
	case toolSlipway, toolAPI:
		files["cluster.yaml"] = clusterFile(hosts, l.key)
		argv = []string{l.Slipway, "init", "os", "-f", "cluster.yaml", "--yes"}
		if s != nil {
			argv[0] = l.Manager
			env = append(env, "SLIPWAY_BENCH_KUBECONFIG="+s.kubeconfig, "SLIPWAY_BENCH_NAMESPACE="+recordsNamespace, "SLIPWAY_BENCH_DIR="+home)
		}
		env = append(env, "SLIPWAY_HOME="+filepath.Join(home, "slipway"))
	default:
		files["playbook.yml"], files["hosts"], files["ansible.cfg"] = playbook, ansibleInventory(hosts, l.key), ansibleConfig(l.Forks, home)
		if tool == toolMerged {
			files["playbook.yml"] = merged
		}
		argv = []string{"ansible-playbook", "-i", "hosts", "playbook.yml"}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			return nil, nil, err
		}
	}
	return argv, env, nil
}

// clusterFile describes a cluster of the hosts: the first is its control
// plane.
func clusterFile(hosts []host, key string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: bench}
spec:
  ssh: {user: root, privateKeyFile: %q}
  network: {podCIDR: [10.128.0.0/10]} # room for as many nodes
  kubernetes: {kubelet: {config: {failCgroupV1: false}}} # whatever this machine has
  hosts:
`, key)
	role := "control-plane"
	for _, h := range hosts {
		fmt.Fprintf(&b, "  - {name: %s, address: %s, roles: [%s]}\n", h.Name, h.Address, role)
		role = "worker"
	}
	return b.String()
}

// ansibleInventory names the hosts to Ansible.
func ansibleInventory(hosts []host, key string) string {
	var b strings.Builder
	for _, h := range hosts {
		fmt.Fprintf(&b, "%s ansible_host=%s\n", h.Name, h.Address)
	}
	fmt.Fprintf(&b, "[all:vars]\nansible_user=root\nansible_ssh_private_key_file=%s\nansible_python_interpreter=/usr/bin/python3\n", key)
	return b.String()
}

// ansibleConfig is Ansible as fast as its settings make it.
func ansibleConfig(forks int, home string) string {
	return fmt.Sprintf(`[defaults]
forks = %[1]d
host_key_checking = False
nocows = True
retry_files_enabled = False
[ssh_connection]
pipelining = True
control_path_dir = %[2]s/cp
ssh_args = -F /dev/null -o UserKnownHostsFile=%[2]s/known_hosts -o PreferredAuthentications=publickey -o ControlMaster=auto -o `+
		`ControlPersist=60s
`, forks, home)
}
