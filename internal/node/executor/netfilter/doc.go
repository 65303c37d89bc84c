// Package netfilter reads and removes packet filter rules over netlink. Linux only.
package netfilter
