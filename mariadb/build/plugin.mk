# SPDX-License-Identifier: GPL-2.0-only
# Builds ha_alluvium.so. `plugin.sh` calls it with the variables of the server's build.env, and:
#
#   LIBRARY   liballuvium_c.a
#   OBJECTS   folder of the objects
#   PLUGIN    the plugin, stripped

here := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
sources := $(wildcard $(here)/../src/*.cc)
objects := $(patsubst $(here)/../src/%.cc,$(OBJECTS)/%.o,$(sources))

# After the flags of build.env.
CXXFLAGS = $(MARIADB_CXXFLAGS) -Wall -Wextra -Werror $(MARIADB_INCLUDES) -I$(here)/../../crates/alluvium-c/include

# The unstripped plugin stays next to the objects, for a debugger.
$(PLUGIN): $(OBJECTS)/ha_alluvium.so
	@mkdir -p $(@D)
	@echo 'mariadb: strip $(@F)'
	@strip --strip-unneeded -o $@.new $<
	@mv $@.new $@

$(OBJECTS)/ha_alluvium.so: $(objects) $(LIBRARY) $(MARIADB_SERVICES) $(here)/plugin.map
	@echo 'mariadb: link $(@F)'
	@$(CXX) -shared -Wl,--version-script=$(here)/plugin.map -Wl,--gc-sections -o $@ $(objects) \
	  $(MARIADB_SERVICES) $(LIBRARY) -lpthread -ldl -lm

# Depends on the server's version file: headers of another patch level are older than the objects.
$(OBJECTS)/%.o: $(here)/../src/%.cc $(here)/plugin.mk $(MARIADB_ROOT)/version
	@mkdir -p $(@D)
	@echo 'mariadb: compile $(<F)'
	@$(CXX) $(CXXFLAGS) -MMD -MP -c $< -o $@

-include $(objects:.o=.d)
