# SPDX-License-Identifier: Apache-2.0
# What Maven needs to make the Java package without a network: the plugins that bindings/java/pom.xml names, in Maven's own cache.
# shellcheck shell=bash

# The plugins of the pom that the cache lacks.
missing_plugins() {
  local name version
  sed -n 's/.*<artifactId>\(maven-.*-plugin\)<.*/\1/p; s/.*<version>\(.*\)<.*/\1/p' bindings/java/pom.xml | grep -A 1 plugin | grep -v '^--' |
    while read -r name && read -r version; do
      [[ -f ${HOME:-}/.m2/repository/org/apache/maven/plugins/$name/$version/$name-$version.jar ]] || printf '%s\n' "$name:$version"
    done
}

setup_maven() {
  command -v mvn > /dev/null || return 0 # named as a skip already
  local missing
  mapfile -t missing < <(missing_plugins)
  [[ ${#missing[@]} -gt 0 ]] || return 0
  installing "maven: ${missing[*]}"
  mkdir -p build/maven # a package of nothing needs every plugin
  cp bindings/java/pom.xml build/maven/pom.xml
  mvn --batch-mode --quiet -f build/maven/pom.xml package > /dev/null ||
    skip maven "mvn could not fetch the plugins that bindings/java/pom.xml names"
}
