#!/bin/sh
cat hook.conf
