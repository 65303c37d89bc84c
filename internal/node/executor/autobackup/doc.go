// Package autobackup takes, uploads and tests scheduled backups of etcd. Linux only.
package autobackup
