// Package pods executes operations on static pods and on the logs of pods. Linux only.
package pods
