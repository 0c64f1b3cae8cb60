SET GLOBAL unique_checks=0;
