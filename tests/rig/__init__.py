"""The rig: a real etcd, kube-apiserver, kube-scheduler and kube-controller-manager on loopback, for the tests."""
