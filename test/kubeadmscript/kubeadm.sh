#!/usr/bin/env bash
# The baseline: the least a person would do to get a cluster with kubeadm from
# the same content. All hosts at once wherever kubeadm allows it. No checks,
# no plan, no ledger, nothing to undo or resume. Frozen: a change to it makes
# all earlier figures incomparable.
#   kubeadm.sh CONTENT KEY N CONTROL-PLANE… WORKER…     (N control planes)
# CONTENT holds *.tgz (programs, from /), control-plane.tar and worker.tar (the
# images each needs, as OCI layouts), and the files version, pause and flannel
# (a version and two image names).
set -euo pipefail
content=$1 key=$2 n=$3
shift 3
cps=("${@:1:n}") workers=("${@:n+1}")
cp=${cps[0]} others=("${cps[@]:1}")
name=api.bench.internal # several control planes need a name
version=$(<"$content/version") pause=$(<"$content/pause") flannel=$(<"$content/flannel")

on() { # HOST COMMAND: one SSH session
	ssh -q -i "$key" -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "root@$1" "$2"
}

each() { # FUNCTION HOST…: on all hosts at once; fails if one does
	local f=$1 pids=() pid
	shift
	for h in "$@"; do
		"$f" "$h" &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid"; done
}

settings() {
	cat <<-EOF
	mkdir -p /etc/containerd /etc/cni/net.d /etc/sysctl.d /etc/kubernetes
	cat >/etc/sysctl.d/90-kubernetes.conf <<-END
	net.ipv4.ip_forward = 1
	vm.overcommit_memory = 1
	kernel.panic = 10
	kernel.panic_on_oops = 1
	END
	sysctl -q -p /etc/sysctl.d/90-kubernetes.conf
	swapoff -a
	cat >/etc/containerd/config.toml <<-END
	version = 3
	[plugins.'io.containerd.cri.v1.runtime']
	  restrict_oom_score_adj = true
	  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
	    runtime_type = 'io.containerd.runc.v2'
	    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
	      BinaryName = '/usr/local/bin/runc'
	      SystemdCgroup = true
	[plugins.'io.containerd.cri.v1.images'.pinned_images]
	  sandbox = '$pause'
	END
	cat >/etc/systemd/system/containerd.service <<-END
	[Service]
	ExecStart=/usr/local/bin/containerd
	Type=notify
	Delegate=yes
	KillMode=process
	Restart=always
	LimitNOFILE=1048576
	TasksMax=infinity
	[Install]
	WantedBy=multi-user.target
	END
	cat >/etc/systemd/system/kubelet.service <<-END
	[Unit]
	After=containerd.service
	[Service]
	EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
	ExecStart=/usr/local/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml \\\$KUBELET_KUBEADM_ARGS
	Restart=always
	RestartSec=3
	[Install]
	WantedBy=multi-user.target
	END
	cat >/etc/cni/net.d/10-flannel.conflist <<-END
	{"cniVersion": "0.4.0", "name": "cbr0", "plugins": [
	  {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
	  {"type": "portmap", "capabilities": {"portMappings": true}}]}
	END
	systemctl daemon-reload
	systemctl -q enable --now containerd
	systemctl -q enable kubelet
	EOF
}

prepare() {
	local archive images=worker
	[[ " ${cps[*]} " != *" $1 "* ]] || images=control-plane
	for archive in "$content"/*.tgz; do on "$1" 'tar xzf - -C / --no-same-owner' <"$archive"; done
	settings | on "$1" 'bash -s'
	((n == 1)) || on "$1" "echo '$cp $name' >>/etc/hosts"
	on "$1" 'ctr -n k8s.io images import - >/dev/null 2>&1' <"$content/$images.tar"
}

init() {
	on "$cp" 'cat >/etc/kubernetes/init.yaml' <<-EOF
	apiVersion: kubeadm.k8s.io/v1beta4
	kind: InitConfiguration
	localAPIEndpoint: {advertiseAddress: "$cp"}
	nodeRegistration: {criSocket: unix:///run/containerd/containerd.sock, imagePullPolicy: IfNotPresent}
	---
	apiVersion: kubeadm.k8s.io/v1beta4
	kind: ClusterConfiguration
	kubernetesVersion: $version
	$([[ $n == 1 ]] || echo "controlPlaneEndpoint: $name:6443")
	networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/16}
	---
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	cgroupDriver: systemd
	failCgroupV1: false
	---
	apiVersion: kubeproxy.config.k8s.io/v1alpha1
	kind: KubeProxyConfiguration
	mode: nftables
	conntrack: {maxPerCore: 0, min: 0}
	EOF
	on "$cp" 'kubeadm init --config /etc/kubernetes/init.yaml --ignore-preflight-errors=SystemVerification,NumCPU,Mem >/var/log/kubeadm.log 2>&1'
}

network() {
	sed "s|IMAGE|$flannel|; s|API|$cp|" "$(dirname "$0")/flannel.yaml" | on "$cp" 'kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f - >/dev/null'
}

join() {
	local more=
	[[ " ${others[*]} " != *" $1 "* ]] || more="--control-plane --certificate-key $certificate_key"
	on "$1" "$join_command $more --ignore-preflight-errors=SystemVerification,NumCPU,Mem >/var/log/kubeadm.log 2>&1"
}

# All others are prepared while the first control plane starts.
each prepare "${others[@]}" "${workers[@]}" &
prepared=$!
prepare "$cp"
init
network
join_command=$(on "$cp" 'kubeadm token create --print-join-command')
((n == 1)) || certificate_key=$(on "$cp" 'kubeadm init phase upload-certs --upload-certs 2>/dev/null | tail -n 1')
wait "$prepared"
each join "${others[@]}" "${workers[@]}"
on "$cp" 'export KUBECONFIG=/etc/kubernetes/admin.conf
until [ "$(kubectl get nodes --no-headers | wc -l)" = '"$((n + ${#workers[@]}))"' ]; do sleep 0.2; done
kubectl wait --for=condition=Ready node --all --timeout=180s >/dev/null
kubectl -n kube-system rollout status deployment/coredns --timeout=180s >/dev/null'
