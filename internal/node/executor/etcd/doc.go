// Package etcd executes operations on the etcd member of this host and its data. Linux
// only.
package etcd
